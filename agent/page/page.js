// The page of a Weir node. Text from the node goes into the document as text only, never as markup.
// The token comes behind the # of the address, which browsers never send; it leaves the address bar
// at once.
const given = location.hash.slice(1);
if (/^[0-9a-f]{32,}$/.test(given)) {
	sessionStorage.setItem("token", given);
	history.replaceState(null, "", location.pathname);
}

const $ = id => document.getElementById(id);

function ask(path, options = {}) {
	const token = sessionStorage.getItem("token");
	const headers = token ? {Authorization: "Bearer " + token} : {};
	return fetch(path, {...options, headers, cache: "no-store"});
}

// problem reads what the node says when it refuses.
async function problem(answer) {
	const text = await answer.text();
	try {
		const e = JSON.parse(text);
		return e.report || e.message || text;
	} catch {
		return text.trim() || answer.statusText;
	}
}

// safe shows what would hide text or turn its direction: names come from anybody.
function safe(text) {
	return String(text).replace(/[\p{C}\u2028\u2029]/gu,
		c => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

// safeLines is safe for text of several lines.
const safeLines = text => String(text).split("\n").map(safe).join("\n");

function element(tag, text, kind) {
	const e = document.createElement(tag);
	if (text !== undefined) e.textContent = safe(text);
	if (kind) e.className = kind;
	return e;
}

const units = ["", "k", "M", "G", "T", "P"];
function short(n) {
	let u = 0;
	for (; n >= (u ? 1000 : 10000) && u < units.length - 1; u++) n /= 1000;
	return (u ? n.toFixed(1).replace(".0", "") : Math.round(n)) + units[u];
}

// inBytes is a number of bytes with its unit.
function inBytes(n) {
	let u = 0;
	for (; n >= 1000 && u < units.length - 1; u++) n /= 1000;
	return (u ? n.toFixed(1).replace(".0", "") : Math.round(n)) + " " + units[u] + "B";
}

// plural is a number, or what short makes of it, with what it counts.
const plural = (n, one) => n + " " + one + (String(n) === "1" ? "" : "s");

// rough is short with three digits for what is small.
function rough(n) {
	if (n === null || n === undefined) return "";
	return n >= 1000 ? short(n) : String(Number(n.toPrecision(3)));
}

function end(addr, port, name) {
	if (!addr) return "?";
	const bare = port && addr.includes(":") ? "[" + addr + "]" : addr;
	// who else is in a table is another one
	const shown = name && !name.startsWith("table:") ? name : bare;
	return port ? shown + ":" + port : shown;
}

// noAnswer says what to do when a request fails.
const noAnswer = "the node does not answer: run weir status on its host";

// ---- flows: a map from flow to row, the youngest last; only the rows in sight are in the document

const maxFlows = 10000;
// size is by how much letters are larger than usual: the style makes them larger on a wall.
let size = 1, rowHeight = 22;
function measure() {
	size = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
	rowHeight = 22 * size;
}
measure();
addEventListener("resize", () => {
	measure();
	draw();
});

const flows = new Map();
let order = null, paused = false, dirty = false, lost = 0;

function take(e) {
	if (e.lost) lost += e.lost;
	if (e.kind === "lost") return;
	const refused = e.kind === "drop" || e.kind === "refuse";
	// an event for each packet: one row for all source ports
	const each = refused || e.kind === "log";
	const key = [refused, e.proto, e.src, each ? 0 : e.src_port, e.dst, e.dst_port,
		each ? e.rule + e.reason : "", e.kind === "log"].join("|");
	let f = flows.get(key);
	if (f) flows.delete(key); // it becomes the youngest
	else f = {packets: 0, bytes: 0};
	f.event = e;
	f.time = e.time; f.kind = e.kind; f.proto = e.proto;
	f.rule = e.rule; f.reason = e.reason; f.refused = refused;
	f.from = end(e.src, each ? 0 : e.src_port, e.src_name);
	f.to = end(e.dst, e.dst_port, e.dst_name);
	if (e.kind === "end") {
		f.packets = e.packets[0] + e.packets[1];
		f.bytes = e.bytes[0] + e.bytes[1];
	} else {
		f.packets += 1;
		f.bytes += e.length || 0;
	}
	flows.set(key, f);
	if (flows.size > maxFlows) flows.delete(flows.keys().next().value);
	dirty = true;
}

const pool = [];
const words = {start: "open", end: "ended", drop: "DROP", refuse: "REFUSE", log: "log"};

function draw() {
	const began = performance.now();
	if (!paused || !order) order = Array.from(flows.values()).reverse();
	const list = $("list");
	$("space").style.height = order.length * rowHeight + "px";
	const first = Math.max(0, Math.floor(list.scrollTop / rowHeight) - 5);
	const count = Math.min(order.length - first, Math.ceil(list.clientHeight / rowHeight) + 10);
	for (let i = 0; i < count; i++) {
		if (!pool[i]) {
			pool[i] = element("div", undefined, "row");
			for (let c = 0; c < 9; c++) pool[i].append(element("span", "", c > 6 ? "num" : ""));
			list.append(pool[i]);
		}
		const row = pool[i], f = order[first + i];
		const cells = [f.time.slice(11, 19), words[f.kind], f.proto, f.from, f.to, f.rule,
			f.reason === "rule" ? "" : f.reason, short(f.packets), short(f.bytes)];
		for (let c = 0; c < 9; c++) {
			const text = safe(cells[c]);
			if (row.children[c].textContent !== text) row.children[c].textContent = text;
		}
		row.dataset.at = first + i;
		row.className = "row" + (f === selection.flow ? " chosen" : "") +
			(f.refused ? " refused" : f.kind === "start" ? " open" : "");
		row.style.top = (first + i) * rowHeight + "px";
		row.hidden = false;
	}
	for (let i = Math.max(count, 0); i < pool.length; i++) pool[i].hidden = true;
	note();
	dirty = false;
	page.redraw = Math.max(page.redraw, performance.now() - began);
}

// trouble is why no events come; it stays until they do.
let trouble = "";
function note() {
	$("flows-note").textContent = trouble && safeLines(trouble) || flows.size + " shown" +
		(lost ? ", " + plural(lost, "event") + " lost" : "") + (paused ? ", paused" : "");
}

function frame() {
	if (dirty && !paused) draw();
	requestAnimationFrame(frame);
}

let stream = null;
async function follow(filter) {
	if (stream) stream.abort();
	const mine = stream = new AbortController();
	flows.clear();
	lost = 0;
	trouble = "";
	dirty = true;
	let since = "&since=60s";
	for (;;) {
		try {
			const answer = await ask("v1/events?filter=" + encodeURIComponent(filter) + since,
				{signal: mine.signal});
			if (answer.status === 422 && since) { // no history here
				since = "";
				continue;
			}
			if (!answer.ok) {
				trouble = await problem(answer);
				return note();
			}
			since = trouble = "";
			note();
			const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
			let rest = "";
			for (;;) {
				const {value, done} = await reader.read();
				if (done) break;
				const lines = (rest + value).split("\n");
				rest = lines.pop();
				for (const line of lines) take(JSON.parse(line));
			}
		} catch (e) {
			if (mine.signal.aborted) return;
		}
		trouble = noAnswer;
		note();
		await new Promise(r => setTimeout(r, 2000));
		if (mine.signal.aborted) return;
	}
}

// ---- what is asked again and again

function bars(list, rows, value, text) {
	const most = Math.max(1, ...rows.map(value));
	list.replaceChildren(...rows.map(r => {
		const li = element("li", text(r)), bar = element("i");
		bar.style.width = 100 * value(r) / most + "%";
		li.append(bar);
		return li;
	}));
	if (!rows.length) list.replaceChildren(element("li", "none", "never"));
}

async function top() {
	const t = await (await ask("v1/top?n=60")).json();
	drawMap(t);
	bars($("talkers"), t.talkers.slice(0, 10), r => r.bytes_per_second || r.bytes / 1e9,
		r => r.proto + " " + end(r.src, 0, r.src_name) + " > " + end(r.dst, r.port, r.dst_name) +
			"  " + inBytes(r.bytes_per_second) + "/s, " + inBytes(r.bytes) + ", " +
			plural(r.states, "state"));
	bars($("refusals"), t.refusals.slice(0, 10), r => r.packets,
		r => r.proto + " " + end(r.src, 0, r.src_name) + " > " + end(r.dst, r.port, r.dst_name) +
			"  " + plural(short(r.packets), "packet") + ", rule " + r.rule +
			(r.reason === "rule" ? "" : ", " + r.reason));
	$("state-rows").replaceChildren(...t.ages.map(a => {
		const tr = element("tr");
		tr.append(element("td", a.proto), element("td", a.phase),
			...a.counts.map(n => element("td", n, "num")));
		return tr;
	}));
	page.refused = t.refused.packets;
	return t;
}

const samples = 60, maxRules = 500;
const hits = new Map(); // place and text of a rule -> its row and its history

function spark(history) {
	const ns = "http://www.w3.org/2000/svg";
	const svg = document.createElementNS(ns, "svg"),
		line = document.createElementNS(ns, "polyline");
	const most = Math.max(1, ...history);
	svg.setAttribute("viewBox", "0 0 " + samples + " 18");
	svg.setAttribute("preserveAspectRatio", "none");
	svg.setAttribute("role", "img");
	svg.setAttribute("aria-label", "at most " + most + " packets in two seconds");
	line.setAttribute("points", history.map((h, i) => (samples - history.length + i) + "," +
		(17 - 16 * h / most)).join(" "));
	svg.append(line);
	return svg;
}

async function rules() {
	const all = (await (await ask("v1/rules")).json()).rules;
	const rows = all.slice(0, maxRules).map((r, i) => {
		const key = i + " " + r.number + " " + r.text;
		let h = hits.get(key);
		if (!h) hits.set(key, h = {last: r.packets, history: []});
		h.history.push(Math.max(0, r.packets - h.last));
		if (h.history.length > samples) h.history.shift();
		h.last = r.packets;
		const counted = /^check-state\b/.test(r.text); // by the rules that made the states
		const tr = element("tr", undefined, r.packets || r.disabled || counted ? "" : "never"),
			line = element("td");
		if (r.disabled) {
			line.textContent = "disabled";
		} else if (!r.packets && counted) {
			line.textContent = "counted by the rules that made the states";
		} else if (!r.packets) {
			line.textContent = "never matched";
		} else {
			line.append(spark(h.history));
		}
		const number = element("td", undefined, "num"), edit = element("button", r.number, "link");
		edit.dataset.rule = (r.set ? "set " + r.set + " " : "") + r.text;
		edit.title = "copy to the editor";
		number.append(i < all.length - 1 ? edit : r.number); // the default rule is not a rule
		tr.append(number, element("td", r.packets, "num"), element("td", short(r.bytes), "num"),
			line, element("td", r.text, "code"));
		return tr;
	});
	if (!$("rule-rows").contains(document.activeElement)) $("rule-rows").replaceChildren(...rows);
	$("rules-note").textContent = all.length > maxRules ?
		(all.length - maxRules) + " more rules: run weir fw show" : "";
}

// title names the host and what is wrong with it: how many problems, or "!" when that is not known.
// It is all that a browser shows of a page in the background.
let host = "";
function title(wrong) {
	document.title = (wrong ? "(" + wrong + ") " : "") + (host ? safe(host) + " - " : "") + "Weir";
}

async function poll() {
	try {
		const answer = await ask("v1/status");
		if (!answer.ok) {
			$("status").textContent = safe(await problem(answer));
			title("!");
		} else {
			const s = await answer.json();
			host = s.host || "";
			title((s.problems || []).length);
			const t = await top();
			await rules();
			$("status").textContent = safe((s.healthy ? "healthy" :
				"NOT healthy, run weir status: " + (s.problems || []).map(p => p.what).join("; ")) +
				" | guards " + (s.interfaces || []).map(i => i.name).join(" ") + " | " +
				plural(s.rules, "rule") + " | " + s.states + " of " + s.states_max + " states | " +
				plural(t.refused.packets, "packet") + " refused" +
				(t.lost ? " | " + plural(t.lost, "event") + " lost" : "") +
				(s.weir ? " | Weir " + s.weir : ""));
		}
	} catch (e) {
		$("status").textContent = noAnswer;
		title("!");
	}
	setTimeout(poll, 2000);
}

// sampled asks for what was counted since the last time.
async function sampled() {
	try {
		await Promise.all([fetchHistory(), look()]);
	} catch (e) {
		// the status shows that the node does not answer
	}
	setTimeout(sampled, 5000);
}

// ---- forms and keys

$("filter-form").addEventListener("submit", e => {
	e.preventDefault();
	follow($("filter").value);
});
$("pause").addEventListener("click", () => {
	paused = !paused;
	$("pause").setAttribute("aria-pressed", paused);
	draw();
});
$("list").addEventListener("scroll", () => requestAnimationFrame(draw), {passive: true});
$("why-form").addEventListener("submit", async e => {
	e.preventDefault();
	const answer = await ask("v1/why",
		{method: "POST", body: JSON.stringify({packet: $("packet").value})});
	if (!answer.ok) {
		$("answer").textContent = safeLines(await problem(answer));
		return;
	}
	const a = await answer.json();
	const lines = ["the packet " + decision(a)];
	const widest = Math.max(0, ...(a.tries || []).map(t => t.outcome.length));
	if (a.found) lines.push("it belongs to the state " + a.found);
	if (a.answer) lines.push("the sender gets a " + a.answer);
	for (const t of a.tries || []) {
		lines.push(String(t.rule).padStart(5, "0") + "  " + t.outcome.padEnd(widest) + "  " +
			t.text);
	}
	$("answer").textContent = lines.map(safe).join("\n");
});
document.addEventListener("keydown", e => {
	if (["INPUT", "TEXTAREA", "SELECT"].includes(e.target.tagName) || $("flow-details").open ||
		e.ctrlKey || e.metaKey || e.altKey) return;
	if (e.key === "/") {
		e.preventDefault();
		$("filter").focus();
	} else if (e.key === "p") {
		$("pause").click();
	}
});

// What tests look at.
const page = window.page = {flows, redraw: 0, refused: 0, draw};

// start is called when all parts of the script are there.
function start() {
	Object.assign(page, {past, charts, zoom, fetchHistory, drawCharts, within});
	follow("");
	poll();
	sampled();
	frame();
}

