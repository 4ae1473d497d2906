// ---- charts: what the node has counted in the last hour, and what came since

const kept = 720, shown = 6; // samples; lines of rules or of pods
const past = {began: "", next: 0, times: [], seconds: [], columns: new Map()};

// columnOf returns the values of one thing by sample, zeros at first.
function columnOf(key, make) {
	let c = past.columns.get(key);
	if (!c) {
		c = {key, ...make(), values: {}};
		past.columns.set(key, c);
	}
	return c;
}

// append adds the values of an answer to those of a column, behind zeros for what it did not count.
function append(c, name, values) {
	let all = c.values[name];
	if (!all) all = c.values[name] = new Array(past.times.length - values.length).fill(0);
	while (all.length < past.times.length - values.length) all.push(0);
	all.push(...values);
}

// learn takes an answer of the node: samples that follow those that are known, or all there are.
function learn(a) {
	if (a.began !== past.began || a.first !== past.next) {
		past.began = a.began;
		past.times = [];
		past.seconds = [];
		past.columns.clear();
	}
	past.next = a.first + a.times.length;
	past.times.push(...a.times);
	past.seconds.push(...a.seconds);
	const t = columnOf("traffic", () => ({kind: "traffic"}));
	for (const [name, values] of Object.entries(a.traffic)) append(t, name, values);
	const o = columnOf("others", () => ({kind: "others"}));
	for (const [name, values] of Object.entries(a.others)) append(o, name, values);
	for (const d of a.dropped) {
		append(columnOf("reason " + d.reason, () => ({
			kind: "reason", label: d.reason === "rule" ? "by rules" : d.reason,
		})), "packets", d.packets);
	}
	for (const r of a.rules) {
		const c = columnOf("rule " + r.number + " " + r.text,
			() => ({kind: "rule", label: r.number + " " + r.text}));
		append(c, "packets", r.packets);
		append(c, "bytes", r.bytes);
	}
	for (const p of a.pods) {
		const c = columnOf("pod " + p.container + " " + p.ifname,
			() => ({kind: "pod", label: p.name}));
		append(c, "in", p.bytes_in);
		append(c, "out", p.bytes_out);
		append(c, "dropped", p.dropped);
	}
	const old = Math.max(0, past.times.length - kept);
	past.times.splice(0, old);
	past.seconds.splice(0, old);
	for (const [key, c] of past.columns) {
		let some = c.kind === "traffic" || c.kind === "others";
		for (const all of Object.values(c.values)) {
			while (all.length < past.times.length + old) all.push(0);
			all.splice(0, old);
			some ||= all.some(v => v);
		}
		if (!some) past.columns.delete(key);
	}
}

// zoom is what part of the time the charts show: the last span seconds, or from min to max.
const zoom = {span: 3600, min: null, max: null};

function timeRange() {
	if (zoom.min !== null) return [zoom.min, zoom.max];
	const last = past.times.length ? past.times[past.times.length - 1] : Date.now() / 1000;
	return [last - zoom.span, last];
}

// inSight returns the indexes of the samples that the charts show.
function inSight() {
	const [min, max] = timeRange();
	let first = past.times.findIndex(t => t >= min), end = past.times.findIndex(t => t > max);
	if (first < 0) first = past.times.length;
	if (end < 0) end = past.times.length;
	return [first, end];
}

const rate = (values, factor = 1) => values.map((v, i) => v * factor / past.seconds[i]);
const sumOf = (...all) => all[0].map((_, i) => all.reduce((s, values) => s + values[i], 0));

// busiest returns the columns of a kind that count most in what is in sight, or the one picked.
function busiest(kind, pick, value) {
	const [first, end] = inSight();
	const all = [];
	for (const c of past.columns.values()) {
		if (c.kind !== kind || pick && c.key !== pick) continue;
		let sum = 0;
		const values = value(c);
		for (let i = first; i < end; i++) sum += values[i];
		if (sum > 0 || pick) all.push({c, sum});
	}
	all.sort((a, b) => b.sum - a.sum || (a.c.key < b.c.key ? -1 : 1));
	return all.slice(0, shown).map(e => e.c);
}

const podBytes = c => sumOf(c.values.in, c.values.out);

// The charts: for each its lines, as label and values, of what is known now.
const charts = [
	{id: "traffic", unit: "bit/s", lines() {
		const t = past.columns.get("traffic").values;
		return [["in", rate(t.bytes_in, 8)], ["out", rate(t.bytes_out, 8)]];
	}},
	{id: "refused", unit: "packets/s", lines: () => busiest("reason", "", c => c.values.packets)
		.map(c => [c.label, rate(c.values.packets)])},
	{id: "by-rule", unit: "packets/s", kind: "rule", lines() {
		const lines = busiest("rule", $("pick-rule").value, c => c.values.packets)
			.map(c => [c.label, rate(c.values.packets)]);
		const others = past.columns.get("others").values.rule_packets;
		if (!$("pick-rule").value && others.some(v => v)) lines.push(["other rules", rate(others)]);
		return lines;
	}},
	{id: "by-pod", unit: "bit/s", kind: "pod", lines() {
		const pick = $("pick-pod").value;
		if (!pick) return busiest("pod", "", podBytes).map(c => [c.label, rate(podBytes(c), 8)]);
		const c = past.columns.get(pick);
		return c ? [["in", rate(c.values.in, 8)], ["out", rate(c.values.out, 8)]] : [];
	}},
];

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const clock = (t, seconds) => new Date(t * 1000).toTimeString().slice(0, seconds ? 8 : 5);
const clip = (text, n) => text.length > n ? text.slice(0, n - 3) + "..." : text;

// build makes the chart of some lines in its place.
function build(chart, lines) {
	if (chart.plot) chart.plot.destroy();
	chart.size = size;
	const place = $("chart-" + chart.id), grid = {stroke: colour("--line"), width: 1};
	const axis = {stroke: colour("--dim"), grid, ticks: grid,
		font: Math.round(11 * size) + "px system-ui"};
	chart.plot = new uPlot({
		width: place.clientWidth, height: place.clientHeight,
		legend: {live: true}, padding: [8, 8, 0, 0],
		cursor: {sync: {key: "weir"}, drag: {x: true, y: false, setScale: false},
			bind: {dblclick: () => () => setZoom(3600)}},
		scales: {x: {time: true}, y: {range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1]}},
		axes: [
			{...axis, size: 44 * size, space: 60 * size,
				values: (u, ticks, a, space, step) => ticks.map(t => clock(t, step < 60))},
			{...axis, size: 52 * size, space: 30 * size, values: (u, ticks) => ticks.map(rough)},
		],
		series: [
			{value: (u, v) => v === null ? "" : clock(v, true)},
			...lines.map(([label], i) => ({
				label: safe(clip(label, 40)), stroke: colour("--c" + (i % 6 + 1)), width: 1.5,
				points: {show: false},
				value: (u, v) => v === null ? "" : rough(v) + " " + chart.unit,
			})),
		],
		hooks: {setSelect: [u => {
			if (u.select.width < 5) return;
			const from = u.posToVal(u.select.left, "x"),
				to = u.posToVal(u.select.left + u.select.width, "x");
			u.setSelect({left: 0, top: 0, width: 0, height: 0}, false);
			setZoom(null, from, to);
		}]},
	}, [past.times, ...lines.map(l => l[1])], place);
}

// drawCharts shows what is known. A chart is made again only when its lines are other ones.
function drawCharts() {
	if (!past.times.length) return;
	const [min, max] = timeRange();
	for (const chart of charts) {
		const lines = chart.lines(), names = JSON.stringify(lines.map(l => l[0]));
		const place = $("chart-" + chart.id);
		place.parentElement.classList.toggle("empty", !lines.length);
		if (!chart.plot || chart.names !== names) {
			build(chart, lines);
			chart.names = names;
		} else {
			chart.plot.setData([past.times, ...lines.map(l => l[1])], false);
		}
		chart.plot.setScale("x", {min, max});
		const now = lines.map(([label, values]) => clip(label, 40) + " " +
			rough(values[values.length - 1]) + " " + chart.unit);
		place.setAttribute("aria-label", safe(now.slice(0, 3).join(", ") || "no traffic"));
	}
	for (const kind of ["rule", "pod"]) picks(kind);
}

// picks offers the rules or pods that have counted something.
function picks(kind) {
	const select = $("pick-" + kind), all = [...past.columns.values()].filter(c => c.kind === kind);
	const names = JSON.stringify(all.map(c => c.key).sort());
	if (select.dataset.names === names || select === document.activeElement) return;
	const picked = select.value;
	all.sort((a, b) => a.label.localeCompare(b.label, "en", {numeric: true}));
	select.replaceChildren(select.options[0], ...all.map(c => {
		const o = element("option", clip(c.label, 60));
		o.value = c.key;
		return o;
	}));
	select.value = past.columns.has(picked) ? picked : "";
	select.dataset.names = names;
}

// setZoom shows the last seconds, or with null a part of the past.
function setZoom(span, min = null, max = null) {
	Object.assign(zoom, {span: span || zoom.span, min, max});
	for (const b of document.querySelectorAll("#spans button")) {
		b.setAttribute("aria-pressed", min === null && Number(b.value) === zoom.span);
	}
	drawCharts();
}

async function fetchHistory() {
	const answer = await ask("v1/history?since=" + past.next);
	if (!answer.ok) return;
	const a = await answer.json();
	if (past.began && a.began !== past.began && a.first > 0) {
		past.next = 0; // another agent: all that it has
		return fetchHistory();
	}
	if (!a.times.length && past.times.length) return;
	learn(a);
	drawCharts();
}

for (const b of document.querySelectorAll("#spans button")) {
	b.addEventListener("click", () => setZoom(Number(b.value)));
}
for (const kind of ["rule", "pod"]) $("pick-" + kind).addEventListener("change", drawCharts);
new ResizeObserver(() => {
	for (const chart of charts) {
		const place = $("chart-" + chart.id);
		if (chart.size !== size) chart.names = ""; // letters of another size
		if (chart.plot) chart.plot.setSize({width: place.clientWidth, height: place.clientHeight});
	}
	drawCharts();
}).observe($("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
	for (const chart of charts) chart.names = "";
	drawCharts();
});
