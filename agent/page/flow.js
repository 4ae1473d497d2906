// ---- the details of a flow: which rule, which states, what translates it, and who its ends are

const selection = {flow: null}; // what the arrow keys have chosen

function grid(heads, rows) {
	const t = element("table"), head = element("tr"), body = element("tbody");
	head.append(...heads.map(h => element("th", h)));
	body.append(...rows.map(cells => {
		const tr = element("tr");
		tr.append(...cells.map(c => element("td", c, "code")));
		return tr;
	}));
	t.createTHead().append(head);
	t.append(body);
	const frame = element("div", undefined, "wide");
	frame.append(t);
	return frame;
}

// facts is a list of names and what is known of them.
function facts(pairs) {
	const list = element("dl");
	for (const [name, value] of pairs) {
		if (value) list.append(element("dt", name), element("dd", value));
	}
	return list;
}

const seconds = s => s < 60 ? s.toFixed(1) + " s" : s < 3600 ? Math.round(s / 60) + " min" :
	(s / 3600).toFixed(1) + " h";
const withPort = (addr, port) => (addr.includes(":") ? "[" + addr + "]" : addr) + ":" + (port || 0);

function endText(e) {
	const words = [end(e.addr, e.port)];
	if (e.kind === "host") words.push("this host");
	if (e.kind === "pod") words.push("pod " + e.name);
	if (e.kind === "peer") words.push("a pod of node " + e.name);
	if (e.labels) words.push(...Object.entries(e.labels).map(([k, v]) => k + "=" + v));
	if (e.table) words.push("in table " + e.table);
	return words.join(", ");
}

function peerText(p) {
	const words = [p.name, p.encrypted ? "encrypted" : "NOT encrypted"];
	if (p.path) words.push("path " + p.path);
	if (p.rtt_seconds) words.push((p.rtt_seconds * 1000).toFixed(1) + " ms");
	words.push(p.handshake ?
		"last handshake " + seconds((Date.now() - new Date(p.handshake)) / 1000) + " ago" :
		p.encrypted ? "no handshake yet" : "");
	if (p.problem) words.push(p.problem);
	return words.filter(w => w).join(", ");
}

// decision is the verdict of an explanation in words.
function decision(a) {
	return (a.passed ? "passes" : "is DROPPED") +
		(a.rule ? ", by rule " + a.rule + ": " + (a.text || "") : ", before the rules") +
		(a.reason === "rule" ? "" : ", reason " + a.reason);
}

// happened says what an event reports.
function happened(e) {
	const words = {start: "a state was made", end: "the state ended", drop: "a packet was dropped",
		refuse: "a state was refused", log: "a rule with log matched"};
	let text = e.time.slice(11, 19) + " UTC, " + words[e.kind] +
		(e.rule ? " by rule " + e.rule : "") +
		(e.reason && e.reason !== "rule" ? ", reason " + e.reason : "");
	if (e.kind === "end") {
		text += ", after " + seconds(e.duration_seconds || 0) + ", " +
			inBytes(e.bytes[0]) + " there, " + inBytes(e.bytes[1]) + " back";
	}
	return text;
}

// tell fills the dialog with what the node knows of an event's flow.
async function showDetails(e) {
	const parts = [facts([
		["Last event", happened(e)],
		["Interfaces", [e.hook, e.recv && "received by " + e.recv, e.xmit && "sent by " + e.xmit]
			.filter(w => w).join(", ")],
		["TCP flags", e.flags],
	])];
	$("flow-details-title").textContent = safe(e.proto + " " + end(e.src, e.src_port, e.src_name) +
		" > " + end(e.dst, e.dst_port, e.dst_name));
	$("flow-details-body").replaceChildren(...parts, element("p", "waiting for the node", "dim"));
	if (!$("flow-details").open) $("flow-details").showModal();
	if (!e.src || !e.dst) {
		$("flow-details-body").replaceChildren(...parts,
			element("p", "The packet has no readable addresses."));
		return;
	}
	const answer = await ask("v1/flow", {method: "POST", body: JSON.stringify({
		proto: e.proto, src: withPort(e.src, e.src_port), dst: withPort(e.dst, e.dst_port),
		hook: e.hook, recv: e.recv, xmit: e.xmit,
	})});
	if (!answer.ok) {
		$("flow-details-body").replaceChildren(...parts,
			element("p", await problem(answer), "refused"));
		return;
	}
	const f = await answer.json();
	parts.push(facts([
		["From", endText(f.src)],
		["To", endText(f.dst)],
		["Peer", f.src.peer ? peerText(f.src.peer) : f.dst.peer ? peerText(f.dst.peer) : ""],
	]));
	parts.push(element("h3", "States"));
	parts.push(f.states.length ? grid(
		["flow", "translated to", "phase", "rule", "age", "ends in", "packets", "bytes"],
		f.states.map(s => [
			s.from + " > " + s.to + (s.flow && s.flow !== "default" ? " :" + s.flow : "") +
				(s.engine ? ", in the tunnel" : ""),
			s.wire_from ? s.wire_from + " > " + s.wire_to : "",
			s.phase, s.rule, seconds(s.age_seconds), seconds(s.left_seconds),
			s.packets.map(short).join(" / "), s.bytes.map(short).join(" / "),
		])) : element("p", "The node has no state of this flow."));
	parts.push(element("h3", "If it began now"));
	if (!f.why) parts.push(element("p", f.unknown));
	else {
		parts.push(element("p", "Its first packet " + decision(f.why),
			f.why.passed ? "open" : "refused"));
		if (f.why.answer) parts.push(element("p", "The sender gets a " + f.why.answer + "."));
		if (f.why.tries.length) {
			parts.push(grid(["rule", "outcome", "text"],
				f.why.tries.map(t => [t.rule, t.outcome, t.text])));
		}
	}
	$("flow-details-body").replaceChildren(...parts);
}

// rowFlow returns the flow that a row in sight shows.
const rowFlow = row => order && order[Number(row.dataset.at)];

$("list").addEventListener("click", e => {
	const row = e.target.closest(".row");
	if (row && rowFlow(row)) choose(rowFlow(row), true);
});

// choose marks a flow and, if wanted, shows its details.
function choose(f, open) {
	selection.flow = f;
	draw();
	if (open) showDetails(f.event).catch(() =>
		$("flow-details-body").append(element("p", noAnswer, "refused")));
}

$("list").addEventListener("keydown", e => {
	const step = {ArrowDown: 1, ArrowUp: -1}[e.key];
	if (!step && e.key !== "Enter" || !order || !order.length) return;
	e.preventDefault();
	const at = order.indexOf(selection.flow);
	if (e.key === "Enter") {
		if (at >= 0) choose(order[at], true);
		return;
	}
	const to = Math.min(order.length - 1, Math.max(0, at + step)), list = $("list");
	if (to * rowHeight < list.scrollTop) list.scrollTop = to * rowHeight;
	if ((to + 1) * rowHeight > list.scrollTop + list.clientHeight) {
		list.scrollTop = (to + 1) * rowHeight - list.clientHeight;
	}
	choose(order[to], false);
});
$("flow-details-close").addEventListener("click", () => $("flow-details").close());
$("flow-details-filter").addEventListener("click", () => {
	const e = selection.flow.event;
	$("flow-details").close();
	$("filter").value = e.proto + " from " + e.src + " to " + e.dst;
	follow($("filter").value);
});
