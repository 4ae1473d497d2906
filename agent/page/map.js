// ---- the map: this host with its pods, other nodes, the rest of the world, and what flows

const most = {outside: 8, pod: 24, peer: 12}; // nodes of a kind that are shown
const around = {known: false, pods: [], peers: []}; // what the node said last
const svgNS = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
	const e = document.createElementNS(svgNS, tag);
	for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
	if (text !== undefined) e.textContent = safe(text);
	return e;
}

// bits reads an address as a number and its length.
function bits(addr) {
	if (!addr.includes(":")) {
		return [addr.split(".").reduce((n, part) => n << 8n | BigInt(part), 0n), 32n];
	}
	const [left, right] = addr.split("::").map(half => half ? half.split(":") : []);
	const words = right ?
		[...left, ...Array(8 - left.length - right.length).fill("0"), ...right] : left;
	return [words.reduce((n, word) => n << 16n | BigInt("0x" + word), 0n), 128n];
}

function within(addr, prefix) {
	const [range, length] = prefix.split("/"), [a, size] = bits(addr), [b, other] = bits(range);
	return size === other && a >> size - BigInt(length) === b >> size - BigInt(length);
}

// nodeOf returns what an address belongs to: a pod, this host, another node, or nothing known.
function nodeOf(addr, mine) {
	const pod = around.pods.find(p => p.addrs?.includes(addr));
	if (pod) {
		return {key: "pod " + pod.container + " " + pod.ifname, kind: "pod", label: pod.name,
			from: pod.addrs.join(",")};
	}
	if (mine) return {key: "host", kind: "host", label: "this host", from: "me"};
	const peer = addr && around.peers.find(p => p.pods?.some(range => within(addr, range)));
	if (peer) {
		return {key: "peer " + peer.name, kind: "peer", label: peer.name,
			from: (peer.pods || []).join(",")};
	}
	return {key: "outside " + addr, kind: "outside", label: addr || "?", from: addr};
}

// graph adds up what flows between the nodes.
function graph(t) {
	const nodes = new Map(), edges = new Map();
	const node = n => {
		if (!nodes.has(n.key)) nodes.set(n.key, {...n, weight: 0});
		return nodes.get(n.key);
	};
	node({key: "host", kind: "host", label: "this host", from: "me"});
	for (const p of around.pods) if (p.addrs?.length) node(nodeOf(p.addrs[0]));
	for (const p of around.peers) {
		node({key: "peer " + p.name, kind: "peer", label: p.name, from: (p.pods || []).join(",")})
			.dead = p.encrypted && !p.handshake;
	}
	const pairs = [];
	for (const r of t.talkers) {
		pairs.push([node(nodeOf(r.src, r.src_mine)), node(nodeOf(r.dst, r.dst_mine)),
			{rate: r.bytes_per_second, states: r.states, refused: 0}]);
	}
	for (const r of t.refusals) {
		if (new Date(t.time) - new Date(r.last) > 60000) continue;
		pairs.push([node(nodeOf(r.src, r.src_mine)), node(nodeOf(r.dst, r.dst_mine)),
			{rate: 0, states: 0, refused: r.packets}]);
	}
	for (const [a, b, n] of pairs) {
		a.weight += n.rate + n.states + n.refused;
		b.weight += n.rate + n.states + n.refused;
	}
	const stand = new Map(); // what a node without space is shown as
	for (const [kind, limit] of Object.entries(most)) {
		const all = [...nodes.values()].filter(n => n.kind === kind)
			.sort((a, b) => b.weight - a.weight || (a.key < b.key ? -1 : 1));
		const rest = all.slice(limit);
		if (!rest.length) continue;
		const others = node({key: kind + " others", kind, label: rest.length + " more", from: ""});
		for (const n of rest) {
			stand.set(n.key, others);
			nodes.delete(n.key);
		}
	}
	for (const [a, b, n] of pairs) {
		const from = stand.get(a.key) || a, to = stand.get(b.key) || b;
		const key = from.key + "\n" + to.key + "\n" + (n.refused ? "refused" : "");
		const e = edges.get(key) || {from, to, rate: 0, states: 0, refused: 0};
		for (const what of Object.keys(n)) e[what] += n[what];
		edges.set(key, e);
	}
	return {nodes: [...nodes.values()], edges: [...edges.values()]};
}

// lay gives each node its place: the world on the left, this host with its pods in the middle,
// other nodes on the right. A node stays where it is while the nodes are the same.
function lay(nodes, width) {
	const columns = [
		nodes.filter(n => n.kind === "outside"),
		nodes.filter(n => n.kind === "host").concat(nodes.filter(n => n.kind === "pod")),
		nodes.filter(n => n.kind === "peer"),
	];
	const gap = Math.min(140, width / 8), box = (width - 2 * gap - 2) / 3, row = 30 * size;
	const rows = Math.max(...columns.map(c => c.length), 3);
	columns.forEach((column, i) => {
		column.sort((a, b) => (b.kind === "host") - (a.kind === "host") ||
			a.label.localeCompare(b.label, "en", {numeric: true}));
		column.forEach((n, at) => Object.assign(n, {
			x: 1 + i * (box + gap), y: 4 + (at + (rows - column.length) / 2) * row, width: box,
			column: i,
		}));
	});
	return rows * row + 8;
}

function edgePath(a, b) {
	const y1 = a.y + 12 * size, y2 = b.y + 12 * size;
	if (a.column === b.column) {
		const x = a.column === 2 ? a.x : a.x + a.width, out = a.column === 2 ? -40 : 40;
		return "M" + x + " " + y1 + "C" + (x + out) + " " + y1 + " " +
			(x + out) + " " + y2 + " " + x + " " + y2;
	}
	const x1 = a.column < b.column ? a.x + a.width : a.x,
		x2 = a.column < b.column ? b.x : b.x + b.width, middle = (x1 + x2) / 2;
	return "M" + x1 + " " + y1 + "C" + middle + " " + y1 + " " +
		middle + " " + y2 + " " + x2 + " " + y2;
}

function edgeText(e) {
	return e.from.label + " > " + e.to.label + ": " +
		(e.refused ? plural(short(e.refused), "packet") + " refused" :
			inBytes(e.rate) + "/s, " + plural(e.states, "state"));
}

// drawMap shows who talks to whom. The names of nodes choose which flows the list shows.
function drawMap(t) {
	const svg = $("map-svg"), width = svg.clientWidth;
	// not while someone walks in it
	if (!around.known || !width || svg.contains(document.activeElement)) return;
	const {nodes, edges} = graph(t);
	const height = lay(nodes, width);
	svg.setAttribute("viewBox", "0 0 " + width + " " + height);
	svg.setAttribute("height", height);
	const letters = Math.floor((nodes[0].width / size - 16) / 7.3);
	svg.replaceChildren(...edges.sort((a, b) => a.refused - b.refused).map(e => {
		const line = shape("path", {
			d: edgePath(e.from, e.to),
			class: e.refused ? "edge bad" : e.rate ? "edge" : "edge idle",
			"stroke-width": (e.refused ? 1.5 : 1 + Math.min(8, Math.log2(1 + e.rate / 1000)))
				.toFixed(1),
		});
		line.append(shape("title", {}, edgeText(e)));
		return line;
	}), ...nodes.map(n => {
		const g = shape("g",
			{class: "node " + n.kind + (n.dead ? " dead" : ""), tabindex: 0, role: "button"});
		g.append(shape("title", {}, n.label + (n.dead ? ", no handshake" : "")),
			shape("rect", {x: n.x, y: n.y, width: n.width, height: 24 * size, rx: 4}),
			shape("text", {x: n.x + 8 * size, y: n.y + 16 * size}, clip(n.label, letters)));
		const narrow = () => {
			if (!n.from) return;
			$("filter").value = "from " + n.from;
			follow($("filter").value);
			g.blur();
		};
		g.addEventListener("click", narrow);
		g.addEventListener("keydown", e => e.key === "Enter" && narrow());
		return g;
	}));
	const busy = edges.filter(e => e.rate || e.refused)
		.sort((a, b) => b.rate - a.rate || b.refused - a.refused);
	svg.setAttribute("aria-label", safe(busy.slice(0, 5).map(edgeText).join("; ") || "no traffic"));
}

// look asks which pods and other nodes there are.
async function look() {
	const [pods, peers] = await Promise.all([ask("v1/pods"), ask("v1/peers")]);
	if (pods.ok) around.pods = (await pods.json()).pods || [];
	if (peers.ok) around.peers = (await peers.json()).peers || [];
	around.known = pods.ok && peers.ok;
}
