// ---- the editor: it checks a change, shows what it would have decided, and prints its command

const verdict = d => (d.passed ? "passes" : "refused") +
	(d.rule ? " by " + d.rule + " " + d.text : "") +
	(d.reason === "rule" ? "" : ", " + d.reason);

// mistakeText shows a mistake with its line and a caret, in the manner of fw check.
function mistakeText(m) {
	return m.line + ":" + m.column + ": " + m.message + "\n    " + m.text.replaceAll("\t", " ") +
		"\n    " + " ".repeat(Math.max(0, m.column - 1)) + "^" + (m.hint ? "\n    " + m.hint : "");
}

function code(text, kind) {
	const pre = element("pre", undefined, kind);
	pre.textContent = text.split("\n").map(safe).join("\n");
	return pre;
}

// ruleLines lists rules that a change adds or removes.
const ruleLines = (sign, rules) => rules.map(r => code(
	sign + " " + String(r.number).padStart(5, "0") + " " + (r.set ? "set " + r.set + " " : "") +
		r.text + (r.disabled ? "   (its set is disabled)" : ""),
	sign === "+" ? "open" : "refused"));

function replayed(r) {
	const parts = [element("h3", "Flows of the last minutes with the change")];
	if (!r.flows) return [...parts, element("p", "The rules decided no flow in that time.")];
	const since = clock(new Date(r.from) / 1000, true);
	parts.push(element("p", plural(r.flows, "flow") + " since " + since + ": " +
		r.refused + " would be refused, " + r.passed + " would pass, " +
		r.other + " would match another rule, " + r.same + " would not change" +
		(r.left_out ? "; " + r.left_out + " were left out" : "") +
		(r.skipped ? "; the rules did not decide " + plural(r.skipped, "event") : "") + "."));
	if (r.changes.length) {
		parts.push(grid(["flows", "flow", "now", "with the change"], r.changes.map(c => [
			c.flows,
			c.proto + " " + end(c.src, 0, c.src_name) + " > " + end(c.dst, c.port, c.dst_name),
			verdict(c.now), verdict(c.then),
		])));
	}
	return parts;
}

// shown puts what the node says about a change into the page.
function showPreview(a, text) {
	const place = $("preview");
	if (!a.fine) {
		place.replaceChildren(...(a.mistakes || []).map(m => code(mistakeText(m), "refused")),
			...a.message ? [element("p", a.message, "refused")] : []);
		$("change-note").textContent = "the commands are not valid";
		$("change").setAttribute("aria-invalid", "true");
		return;
	}
	$("change").removeAttribute("aria-invalid");
	$("change-note").textContent = "the commands are valid";
	const parts = [...ruleLines("-", a.removed), ...ruleLines("+", a.added)];
	if (!parts.length) parts.push(element("p", "The rules do not change."));
	parts.push(...a.doubts.map(d => element("p", d, "refused")));
	if (a.replay) parts.push(...replayed(a.replay));
	parts.push(element("h3", "Run this as root to make the change"), code(a.command, "command"));
	const copy = element("button", "Copy");
	copy.type = "button";
	copy.addEventListener("click", () => navigator.clipboard.writeText(a.command).then(
		() => copy.textContent = "Copied",
		() => getSelection().selectAllChildren(copy.previousSibling)));
	parts.push(copy);
	place.replaceChildren(...parts);
}

const asking = {number: 0};

// preview asks the node what a change would do; of several answers the last question counts.
async function preview(replay) {
	const text = $("change").value, mine = ++asking.number;
	if (!text.trim()) {
		$("preview").replaceChildren();
		$("change-note").textContent = "";
		return;
	}
	$("change-note").textContent = "waiting for the node";
	const answer = await ask("v1/preview", {method: "POST", body: JSON.stringify({text, replay})});
	const a = answer.ok ? await answer.json() : {fine: false, message: await problem(answer)};
	if (mine === asking.number) showPreview(a, text);
}

const asked = replay => preview(replay).catch(() => $("change-note").textContent = noAnswer);

$("change-form").addEventListener("submit", e => {
	e.preventDefault();
	asked("5m");
});
$("change").addEventListener("input", () => {
	clearTimeout(asking.later);
	asking.later = setTimeout(() => asked(""), 500);
});
$("change").addEventListener("keydown", e => {
	if (e.key !== "Enter" || !e.ctrlKey && !e.metaKey) return;
	e.preventDefault();
	clearTimeout(asking.later);
	asked("5m");
});

// A click on a rule takes it into the editor.
$("rule-rows").addEventListener("click", e => {
	const button = e.target.closest("button");
	if (!button) return;
	const number = button.textContent, change = $("change");
	change.value = (change.value.trim() ? change.value.trim() + "\n" : "") +
		"delete " + number + "\nadd " + number + " " + button.dataset.rule + "\n";
	change.focus();
	change.scrollIntoView({block: "center"});
	asked("");
});
