"use strict";
// Shows a report from its block of data. Figures come drawn; whatever else comes from a run is set as text, never as markup.
(() => {
  const CUT = 2000;
  const state = { data: null, hidden: new Set(), off: new Set(), step: null, follow: true, run: 0, rolloutStep: null, search: "", verdict: "all", group: 0, member: 0, rollouts: null, opened: new Set() };
  const $ = (id) => document.getElementById(id);

  function add(node, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    for (const it of children.flat(Infinity)) {
      if (it !== null && it !== undefined) node.append(typeof it === "object" ? it : document.createTextNode(String(it)));
    }
    return node;
  }
  const h = (tag, attributes, ...children) => add(document.createElement(tag), attributes, children);
  // Markup of a figure, as it was drawn.
  const drawn = (svg) => document.createRange().createContextualFragment(svg);
  const name = (text, attributes) => h("bdi", { ...attributes, title: text }, text);

  // Numbers: whole ones as they are, others with `digits` significant digits.
  function num(value, digits = 4) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
    return String(Number(value.toPrecision(digits)));
  }

  // ---- data ----
  async function unpacked(text) {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }
  function parse(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const numbers = new Float64Array(buffer, 4 + length);
    for (const run of data.runs) {
      run.column = {};
      run.columns.forEach((it, i) => { run.column[it] = numbers.subarray(run.offset + i * run.rows, run.offset + (i + 1) * run.rows); });
      // The stages of a recipe lie one behind the other.
      run.steps = (run.column.step || new Float64Array(0)).map((it) => it + run.shift);
    }
    data.lastStep = Math.max(0, ...data.runs.map((it) => (it.rows ? it.steps[it.rows - 1] : 0)));
    return data;
  }
  // Row of a step, or -1.
  function rowOf(run, step) {
    let low = 0, high = run.rows - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (run.steps[middle] === step) return middle;
      if (run.steps[middle] < step) low = middle + 1; else high = middle - 1;
    }
    return -1;
  }
  const valueAt = (run, metric, step) => {
    const row = rowOf(run, step);
    return row < 0 || !run.column[metric] ? NaN : run.column[metric][row];
  };
  const shownRuns = () => state.data.runs.map((_, i) => i).filter((it) => !state.hidden.has(state.data.runs[it].name));

  // ---- figures ----
  const charts = [];
  // Charts for the figures there are, in their order; a run may begin to log a metric late.
  function buildCharts() {
    const inBox = { charts: 0, "more-charts": 0 };
    for (const it of charts) it.figure = null;
    for (const figure of state.data.drawn.figures) {
      const box = figure.more ? "more-charts" : "charts";
      let chart = charts.find((it) => it.id === figure.id);
      if (!chart) {
        chart = chartOf(figure);
        $(box).insertBefore(chart.node, $(box).children[inBox[box]] || null);
      }
      chart.figure = figure;
      inBox[box] = [...$(box).children].indexOf(chart.node) + 1;
    }
    for (const it of charts) it.node.hidden = !it.figure;
    $("more").hidden = !inBox["more-charts"];
  }
  function chartOf(figure) {
    const plot = h("div", { class: "plot" });
    const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    const frame = h("div", { class: "frame", tabindex: 0, role: "slider", "aria-label": `${figure.title} by step`, "aria-valuemin": 1, "aria-valuenow": 1, "aria-orientation": "horizontal" }, plot, tip);
    const legend = h("ul", { class: "legend" });
    const node = h("figure", { id: `figure-${figure.id}` }, h("figcaption", {}, figure.title, figure.unit ? h("small", {}, ` · ${figure.unit}`) : null), figure.help ? h("p", { class: "help" }, figure.help) : null, frame, legend);
    const chart = { id: figure.id, figure, frame, plot, tip, legend, node, lines: [], shown: -1, pointed: false, seen: false };
    frame.addEventListener("pointermove", (event) => {
      if (!chart.svg) return;
      chart.pointed = true;
      const box = chart.svg.getBoundingClientRect();
      setStep(nearest(chart, stepAt((event.clientX - box.left) / box.width)));
    });
    frame.addEventListener("pointerleave", () => { chart.pointed = false; tip.hidden = true; });
    frame.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      const steps = stepsOf(chart);
      const at = steps.indexOf(nearest(chart, state.step)) + by;
      setStep(steps[Math.min(steps.length - 1, Math.max(0, at))] ?? state.step);
    });
    charts.push(chart);
    near.observe(node);
    return chart;
  }
  // Only figures near the screen are shown; the others when they come near.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.find((it) => it.node === entry.target);
      if (!chart) continue;
      chart.seen = entry.isIntersecting;
      if (chart.seen && chart.shown !== version) show(chart);
    }
  }, { rootMargin: "600px" });
  let version = 0;
  // Printing, and a jump down the page, want the figures that were never near.
  function showAll() { for (const it of charts) if (it.shown !== version && !it.node.closest("details:not([open])")) show(it); }
  addEventListener("beforeprint", showAll);
  addEventListener("click", (event) => { if (state.data && event.target.closest("nav a")) showAll(); });
  function redraw() {
    version++;
    for (const it of charts) if (it.seen) show(it);
  }
  function show(chart) {
    const { figure } = chart;
    if (!figure) return;
    chart.shown = version;
    chart.lines = figure.curves.map((it, at) => ({ ...it, at, key: JSON.stringify([figure.id, it.label]) })).filter((it) => it.runs.some((run) => !state.hidden.has(state.data.runs[run].name)));
    chart.steps = null;
    chart.plot.replaceChildren(drawn(figure.svg));
    chart.svg = chart.plot.firstChild;
    chart.cursor = chart.svg.querySelector(".cursor");
    const named = new Set();
    chart.legend.replaceChildren(...chart.lines.map((it) => {
      it.output = h("output", {});
      // The frames of a stack share their colours: one name each.
      if (figure.stacked && (named.size === named.add(it.metric).size)) return "";
      const mark = h("span", { class: "mark" }, drawn(it.mark));
      if (figure.stacked) return h("li", {}, h("span", { class: "toggle" }, mark, name(it.label)), it.output);
      const toggle = h("button", { class: "toggle", "aria-pressed": String(!state.off.has(it.key)), onclick: () => {
        if (!state.off.delete(it.key)) state.off.add(it.key);
        toggle.setAttribute("aria-pressed", String(!state.off.has(it.key)));
        hideLines(chart);
        readOut(chart);
      } }, mark, name(it.label));
      return h("li", {}, toggle, it.output);
    }));
    hideLines(chart);
    readOut(chart);
  }
  function hideLines(chart) {
    const on = new Map(chart.lines.map((it) => [it.at, !state.off.has(it.key)]));
    for (const it of chart.svg.querySelectorAll("[data-line]")) it.classList.toggle("off", !on.get(Number(it.dataset.line)));
  }
  // Steps at which a line of the chart has a value.
  function stepsOf(chart) {
    if (chart.steps) return chart.steps;
    const found = new Set();
    for (const line of chart.lines) for (const at of line.runs) {
      const run = state.data.runs[at];
      run.column[line.metric]?.forEach((value, row) => { if (Number.isFinite(value)) found.add(run.steps[row]); });
    }
    return (chart.steps = [...found].sort((a, b) => a - b));
  }
  // Index of the last number that is no greater, of numbers in order.
  function before(numbers, value) {
    let low = 0, high = numbers.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (numbers[middle] <= value) low = middle; else high = middle - 1; }
    return low;
  }
  function nearest(chart, step) {
    const steps = stepsOf(chart), at = before(steps, step);
    return at + 1 < steps.length && steps[at + 1] - step < step - steps[at] ? steps[at + 1] : steps[at] ?? step;
  }
  const stepAt = (place) => { const [first, last] = state.data.drawn.ends; return first + place * (last - first); };
  const placeOf = (step) => { const [first, last] = state.data.drawn.ends; return Math.min(1, Math.max(0, (step - first) / (last - first))); };
  function readOut(chart) {
    if (!chart.svg) return;
    const place = placeOf(Math.max(1, state.step));
    for (const it of ["x1", "x2"]) chart.cursor.setAttribute(it, `${100 * place}%`);
    const said = [];
    for (const it of chart.lines) {
      const values = it.runs.map((run) => valueAt(state.data.runs[run], it.metric, state.step)).filter((value) => Number.isFinite(value));
      it.mean = values.length ? num(values.reduce((a, b) => a + b) / values.length) : "–";
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const text = low < high ? `${it.mean} [${num(low)}, ${num(high)}]` : it.mean;
      it.output.textContent = text;
      said.push(`${it.label} ${text}`);
    }
    if (chart.pointed) showTip(chart, place);
    chart.frame.setAttribute("aria-valuetext", `step ${state.step}: ${said.join(", ")}`);
    chart.frame.setAttribute("aria-valuenow", state.step);
    chart.frame.setAttribute("aria-valuemax", state.data.lastStep);
  }
  // What lies under the pointer: the step and the value of each line.
  function showTip(chart, place) {
    const lines = chart.lines.filter((it) => !state.off.has(it.key));
    chart.tip.replaceChildren(h("b", {}, `step ${state.step}`), ...lines.map((it) => h("div", {}, h("i", { class: `swatch f${it.colour}` }), h("bdi", {}, it.label), h("span", {}, it.mean))));
    chart.tip.hidden = false;
    const [frame, plot] = [chart.frame.getBoundingClientRect(), chart.svg.getBoundingClientRect()];
    const x = plot.left - frame.left + place * plot.width;
    chart.tip.style.left = place < 0.5 ? `${x}px` : "auto";
    chart.tip.style.right = place < 0.5 ? "auto" : `${frame.width - x}px`;
  }

  // ---- the step at hand ----
  function setStep(step, follow) {
    const last = Math.max(1, state.data.lastStep);
    state.step = Math.min(last, Math.max(1, Math.round(step) || 1));
    state.follow = follow ?? state.step === last;
    $("step").value = state.step;
    $("step").max = $("step-range").max = last;
    $("step-range").value = state.step;
    for (const it of charts) if (it.seen && it.shown === version) readOut(it);
    numbers();
  }
  let numbersDue = false;
  function numbers() {
    if (numbersDue) return;
    numbersDue = true;
    requestAnimationFrame(() => {
      numbersDue = false;
      const runs = shownRuns().map((it) => state.data.runs[it]);
      const metrics = [...new Set(runs.flatMap((it) => it.columns))].filter((it) => it !== "step");
      $("numbers-table").replaceChildren(
        h("caption", {}, `Step ${state.step}`),
        h("thead", {}, h("tr", {}, h("th", {}, "metric"), runs.map((it) => h("th", { class: "n" }, name(it.name))))),
        h("tbody", {}, metrics.map((metric) => h("tr", {}, h("th", { scope: "row" }, name(metric)), runs.map((run) => {
          const value = valueAt(run, metric, state.step);
          return h("td", { class: "n", title: Number.isNaN(value) ? "not logged" : String(value) }, metric === "memory/rss" ? `${num(value / 1e9, 3)} GB` : num(value, 6));
        })))));
    });
  }

  // ---- sections ----
  const section = (id, title, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
  function build() {
    near.disconnect();
    charts.length = 0;
    $("main").replaceChildren(
      section("runs", "Runs", h("div", { class: "cards", id: "cards" })),
      section("evaluation", "Evaluation", h("div", { id: "tables" })),
      section("figures", "Figures",
        h("div", { class: "controls" },
          h("span", { class: "help" }, "Point at a figure, or focus it and press ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), ", to read a step. Click a line's name to hide it. The seeds of a recipe are one band: mean, lowest, highest.")),
        h("div", { class: "charts", id: "charts" }),
        h("details", { id: "more" }, h("summary", {}, "More metrics"), h("div", { class: "charts", id: "more-charts" }))),
      section("rollouts", "Rollouts", h("div", { id: "browser" })),
      section("numbers", "Numbers of a step",
        h("div", { class: "controls" },
          h("button", { id: "step-before", onclick: () => setStep(state.step - 1), "aria-label": "Step before" }, "←"),
          h("label", {}, "Step", h("input", { id: "step", type: "number", min: 1, onchange: (event) => setStep(Number(event.target.value)) })),
          h("button", { id: "step-after", onclick: () => setStep(state.step + 1), "aria-label": "Step after" }, "→"),
          h("input", { id: "step-range", type: "range", min: 1, "aria-label": "Step", oninput: (event) => setStep(Number(event.target.value)) })),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the step" }, h("table", { id: "numbers-table" }))),
      section("recipe", "Recipe", h("div", { id: "recipes" })));
    buildBrowser();
  }
  // Runs that are shown and hidden together: the seeds of a band, the stages of a recipe.
  const together = (run) => state.data.lines.find((it) => it.includes(run));
  function hideRuns(runs, hide) {
    for (const it of runs.map((run) => state.data.runs[run].name)) if (hide) state.hidden.add(it); else state.hidden.delete(it);
    document.querySelectorAll("#cards input").forEach((box, i) => { box.checked = !state.hidden.has(state.data.runs[i].name); });
    redraw();
    numbers();
  }
  // Colours of the runs beside their names, where lines have them.
  function swatches() {
    const groups = state.data.lines;
    document.querySelectorAll("#cards .swatch").forEach((it, i) => {
      it.hidden = groups.length === 1;
      it.setAttribute("class", `swatch f${groups.findIndex((group) => group.includes(i)) % 7}`);
    });
  }
  function refresh() {
    const { runs } = state.data;
    $("subtitle").textContent = runs.length === 1 ? runs[0].path : `${runs.length} runs`;
    $("headline").textContent = state.data.headline;
    $("cards").replaceChildren(...runs.map((run, i) => {
      return h("article", { class: "card" },
        h("h3", {}, runs.length > 1 ? h("input", { type: "checkbox", checked: !state.hidden.has(run.name), "aria-label": `Show ${run.name}`, onchange: (event) => hideRuns(together(i), !event.target.checked) }) : null,
          runs.length > 1 ? h("span", { class: "swatch", "aria-hidden": "true" }) : null, name(run.name)),
        h("div", { class: "help" }, [run.method, run.seed === null ? null : `seed ${run.seed}`].filter((it) => it).join(" · ")),
        h("dl", {}, [...run.facts, ...dates(run)].map((it) => [h("dt", {}, it.label), h("dd", {}, it.text)])),
        run.notes.map((it) => h("p", { class: "note" }, it)));
    }));
    swatches();
    tables();
    recipes();
    buildCharts();
    if (state.step === null || state.follow) setStep(state.data.lastStep || 1, true); else setStep(state.step, false);
    redraw();
    refreshBrowser();
  }
  // When the first and the last logged step ended, in the reader's time.
  function dates(run) {
    const clock = (run.column["time/unix"] || []).filter((it) => it > 0);
    if (!clock.length) return [];
    const text = (it) => new Date(it * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
    const [from, to] = [text(clock[0]), text(clock[clock.length - 1])];
    return [{ label: "date", text: from === to ? from : `${from} – ${to}` }];
  }
  function cell(it) {
    if (typeof it === "number") return h("td", { class: "n", title: String(it) }, num(it));
    if (it && typeof it === "object") return h("td", { class: "n", title: String(it.mean) }, `${num(it.mean, 3)} [${num(it.low, 3)}, ${num(it.high, 3)}]`);
    return h("td", { dir: "auto" }, it);
  }
  function tables() {
    const all = state.data.tables;
    if (!all.length) {
      $("tables").replaceChildren(h("p", { class: "help" }, "No evaluation yet. [eval] in a recipe makes some; ", h("code", {}, "hapo eval --model RUN/checkpoints/step-… --json > RUN/eval.json"), " adds a table."));
      return;
    }
    $("tables").replaceChildren(...all.map((it) => tableOf(it, it.rows.flat().some((one) => one?.mean !== undefined) ? " · brackets hold 95 % intervals" : "")));
  }
  function tableOf(table, about) {
    // The column that names a row comes first.
    const first = table.columns.findIndex((it) => ["run", "model", "benchmark"].includes(it));
    const order = table.columns.map((_, i) => i).sort((a, b) => (b === first) - (a === first) || a - b);
    return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title }, h("table", {}, h("caption", {}, name(table.title), about),
      h("thead", {}, h("tr", {}, order.map((i) => h("th", { class: i === first ? null : "n" }, name(table.columns[i]))))),
      h("tbody", {}, table.rows.map((row) => h("tr", {}, order.map((i) => cell(row[i])))))));
  }
  function recipes() {
    const { runs, differences } = state.data;
    const keys = [...new Set(runs.flatMap((it) => Object.keys(it.recipe)))].sort();
    const differs = new Set(differences.map((it) => it.key));
    const table = (rows, caption) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, h("th", {}, "key"), runs.map((it) => h("th", {}, name(it.name))))),
      h("tbody", {}, rows.map((key) => h("tr", { class: differs.has(key) ? "differs" : null }, h("th", { scope: "row" }, name(key)), runs.map((it) => h("td", { dir: "auto" }, it.recipe[key] ?? "absent")))))));
    const open = $("whole-recipe") ? $("whole-recipe").open : false;
    // What one method reads and another does not is a consequence of the method.
    const [both, some] = [true, false].map((all) => [...differs].filter((key) => runs.every((it) => key in it.recipe) === all));
    const compared = runs.length < 2 ? [] : [
      both.length ? table(both, `${both.length} keys differ`) : h("p", { class: "help" }, differs.size ? "Common keys are equal." : "The recipes are equal."),
      some.length ? h("details", {}, h("summary", {}, `${some.length} keys of some of the runs`), table(some, "absent: the run does not read it")) : null].filter((it) => it);
    $("recipes").replaceChildren(
      ...compared,
      h("details", { id: "whole-recipe", open }, h("summary", {}, "The whole recipe"), table(keys, `${keys.length} keys`)));
  }

  // ---- rollouts ----
  function buildBrowser() {
    $("browser").replaceChildren(
      h("div", { class: "controls", id: "rollout-controls" },
        h("label", {}, "Run", h("select", { id: "rollout-run", onchange: (event) => { state.run = Number(event.target.value); state.rolloutStep = null; refreshBrowser(); } })),
        h("button", { id: "rollout-before", "aria-label": "Kept step before", onclick: () => moveStep(-1) }, "←"),
        h("label", {}, "Step", h("select", { id: "rollout-step", onchange: (event) => pick(Number(event.target.value)) })),
        h("button", { id: "rollout-after", "aria-label": "Kept step after", onclick: () => moveStep(1) }, "→"),
        h("label", {}, "Show", h("select", { id: "rollout-verdict", onchange: (event) => { state.verdict = event.target.value; state.group = 0; showGroups(); } },
          [["all", "all groups"], ["injected", "groups with the teacher"], ["correct", "groups with a correct answer"], ["wrong", "groups with a wrong answer"], ["unparsable", "groups with an unreadable answer"], ["none", "groups that all failed"]].map(([value, text]) => h("option", { value }, text)))),
        h("label", {}, "Search", h("input", { id: "rollout-search", type: "search", placeholder: "problem, answer or text", oninput: (event) => { state.search = event.target.value; state.group = 0; if (state.rollouts) showGroups(); } }))),
      h("p", { class: "help", id: "rollout-note", role: "status" }),
      h("p", { class: "help", id: "rollout-keys" }, h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " group, ", h("kbd", {}, "↑"), " ", h("kbd", {}, "↓"), " rollout, ", h("kbd", {}, "Shift"), " with ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " step"),
      h("div", { class: "browser", id: "rollout-browser", onkeydown: keys },
        h("ul", { class: "list", id: "rollout-groups", "aria-label": "Groups" }),
        h("div", { id: "rollout-group", tabindex: 0, role: "region", "aria-label": "Group" })));
  }
  function keys(event) {
    if (event.target.matches("select, input")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) {
      event.preventDefault();
      if (event.shiftKey) moveStep(by); else moveGroup(by);
      return;
    }
    const down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!down || event.target.closest("pre")) return;
    const members = [...document.querySelectorAll("#rollout-group .member")];
    if (!members.length) return;
    event.preventDefault();
    const at = members.indexOf(document.activeElement);
    members[Math.min(members.length - 1, Math.max(0, at < 0 ? 0 : at + down))].focus();
  }
  const browsable = () => state.data.runs[state.run].rollout_steps;
  function moveStep(by) {
    const steps = browsable();
    const at = steps.indexOf(state.rolloutStep) + by;
    if (at >= 0 && at < steps.length) pick(steps[at]);
  }
  function moveGroup(by) {
    const groups = filtered();
    if (!groups.length) return;
    state.group = Math.min(groups.length - 1, Math.max(0, state.group + by));
    showGroups();
    $("rollout-group").focus({ preventScroll: true });
    $("rollout-groups").querySelector("[aria-current=true]").scrollIntoView({ block: "nearest" });
  }
  function refreshBrowser() {
    const { runs } = state.data;
    const any = runs.some((it) => it.rollout_steps.length);
    for (const id of ["rollout-controls", "rollout-keys", "rollout-browser"]) $(id).hidden = !any;
    if (!any) { $("rollout-note").textContent = "There are no rollouts to browse."; return; }
    if (!runs[state.run] || !runs[state.run].rollout_steps.length) state.run = runs.findIndex((it) => it.rollout_steps.length);
    options($("rollout-run"), runs.map((it, i) => [i, it.name]).filter(([i]) => runs[i].rollout_steps.length), state.run);
    const steps = browsable();
    if (!steps.includes(state.rolloutStep)) pick(steps[steps.length - 1]);
    else { options($("rollout-step"), steps.map((it) => [it, it]), state.rolloutStep); stepButtons(); }
  }
  function options(select, pairs, chosen) {
    const now = JSON.stringify(pairs);
    if (select.dataset.pairs !== now) { select.dataset.pairs = now; select.replaceChildren(...pairs.map(([value, text]) => h("option", { value }, text))); }
    select.value = chosen;
  }
  function stepButtons() {
    const at = browsable().indexOf(state.rolloutStep);
    $("rollout-before").disabled = at <= 0;
    $("rollout-after").disabled = at >= browsable().length - 1;
  }
  async function rolloutsOf(run, step) {
    const stored = $(`rollouts-${run}-${step}`);
    return JSON.parse(new TextDecoder().decode(await unpacked(stored.textContent)));
  }
  // A problem over the steps whose rollouts can be browsed: how many of its rollouts were correct.
  async function overSteps(group, box) {
    const run = state.run;
    const rows = [];
    box.replaceChildren(h("p", { class: "help" }, "Reading …"));
    for (const step of state.data.runs[run].rollout_steps) {
      let read;
      try { read = await rolloutsOf(run, step); } catch { continue; }
      const at = read.groups.findIndex((it) => it.id === group.id && it.problem === group.problem);
      if (at >= 0) rows.push([step, read.groups[at]]);
    }
    if (!box.isConnected) return;
    box.replaceChildren(h("table", {}, h("caption", {}, `${rows.length} browsable step${rows.length === 1 ? "" : "s"} with this problem`),
      h("thead", {}, h("tr", {}, ["step", "correct", "mean tokens", "teacher"].map((it) => h("th", {}, it)))),
      h("tbody", {}, rows.map(([step, it]) => h("tr", {},
        h("td", {}, h("button", { onclick: async () => { state.verdict = $("rollout-verdict").value = "all"; state.search = $("rollout-search").value = ""; await pick(step); state.group = Math.max(0, filtered().findIndex((other) => other.id === it.id && other.problem === it.problem)); showGroups(); } }, step)),
        h("td", {}, `${correct(it)} of ${sampled(it).length}`), h("td", { class: "n" }, num(sampled(it).reduce((sum, one) => sum + one.tokens, 0) / Math.max(1, sampled(it).length), 3)), h("td", {}, it.injected ? "entered" : ""))))));
  }
  async function pick(step) {
    state.rolloutStep = step;
    state.group = 0;
    options($("rollout-step"), browsable().map((it) => [it, it]), step);
    stepButtons();
    const asked = `${state.run}-${step}`;
    state.asked = asked;
    let read, problem;
    try { read = await rolloutsOf(state.run, step); } catch (error) { problem = error.message; }
    if (state.asked !== asked) return;
    state.rollouts = read || null;
    if (problem) { $("rollout-note").textContent = problem; $("rollout-groups").replaceChildren(); $("rollout-group").replaceChildren(); return; }
    showGroups();
  }
  const sampled = (group) => group.members.filter((it) => it.role !== "teacher");
  const correct = (group) => sampled(group).filter((it) => it.verdict === "correct").length;
  function filtered() {
    if (!state.rollouts) return [];
    const wanted = state.search.toLowerCase();
    const holds = (text) => text.toLowerCase().includes(wanted);
    return state.rollouts.groups.filter((group) => {
      if (wanted && !holds(group.id) && !holds(group.problem) && !holds(group.answer) && !group.members.some((it) => holds(it.completion))) return false;
      switch (state.verdict) {
        case "injected": return group.injected;
        case "none": return correct(group) === 0;
        case "all": return true;
        default: return sampled(group).some((it) => it.verdict === state.verdict);
      }
    });
  }
  function showGroups() {
    const all = state.rollouts;
    const groups = filtered();
    const run = state.data.runs[state.run];
    const parts = [`${groups.length} of ${all.groups_total} groups`];
    if (all.groups.length < all.groups_total) parts.push(`a sample of ${all.groups.length}, half of them with the teacher where there are so many`);
    if (run.rollout_steps.length < run.rollout_steps_kept) parts.push(`this page carries ${run.rollout_steps.length} of ${run.rollout_steps_kept} kept steps`);
    $("rollout-note").textContent = `${parts.join("; ")}.`;
    $("rollout-groups").replaceChildren(...groups.map((group, i) => h("li", {}, h("button", { "aria-current": i === state.group ? "true" : "false", onclick: () => { state.group = i; showGroups(); } },
      h("bdi", {}, group.problem.slice(0, 160)), h("small", {}, `${correct(group)} of ${sampled(group).length} correct${group.injected ? " · teacher entered" : ""}`)))));
    const group = groups[state.group];
    $("rollout-group").replaceChildren(...(group ? groupOf(group) : [h("p", { class: "help" }, "No group is of this kind.")]));
  }
  function groupOf(group) {
    const pair = group.members.filter((it) => it.role === "teacher" || it.role === "replaced");
    const rest = group.members.filter((it) => it.role === "policy");
    return [
      h("article", { class: "card" }, h("h3", {}, "Problem ", name(group.id)), long(group.problem, `p-${group.id}`), h("p", {}, "Gold answer: ", h("b", {}, h("bdi", {}, group.answer))), group.rendered ? h("details", {}, h("summary", {}, "The prompt as the model reads it"), long(group.rendered, `r-${group.id}`)) : null, h("button", { onclick: (event) => overSteps(group, event.target.nextSibling) }, "This problem over the steps"), h("div", { class: "scroll" })),
      pair.length ? h("div", { class: "pair" }, pair.map((it) => memberOf(it, group))) : null,
      h("div", { class: "pair" }, rest.map((it) => memberOf(it, group)))].filter((it) => it);
  }
  const ROLES = { teacher: "Teacher, injected", replaced: "Replaced by the teacher", policy: "Rollout" };
  // Where a wrong answer leaves the correct one of its group that it follows longest, at the beginning of a word.
  function leaves(it, group) {
    if (it.verdict === "correct") return null;
    let best = null;
    for (const other of group.members) {
      if (other === it || other.verdict !== "correct") continue;
      const [a, b] = [it.completion, other.completion];
      let at = 0;
      while (at < a.length && at < b.length && a[at] === b[at]) at++;
      while (at > 0 && /[\p{L}\p{N}]/u.test(a[at - 1])) at--;
      if (at > 0 && (!best || at > best.at)) best = { at, other };
    }
    return best;
  }
  function memberOf(it, group) {
    const why = it.why;
    const rows = [];
    const parted = leaves(it, group);
    if (parted) rows.push(["leaves", `${(ROLES[parted.other.role] || parted.other.role).toLowerCase()} ${parted.other.slot}, correct, at the mark`]);
    if (it.reward !== undefined) rows.push(["reward", num(it.reward)]);
    if (it.advantage !== undefined) rows.push(["advantage", num(it.advantage)]);
    if (it.reason) rows.push(["recorded", it.reason]);
    if (why) {
      rows.push(["extracted", why.extracted ?? "nothing"]);
      if (why.answer_read) rows.push(["read as", why.answer_read]);
      rows.push(["gold read as", why.gold_read || "–"], ["because", why.rule]);
      if (why.verdict !== it.verdict) rows.push(["note", `this version of the grader says ${why.verdict}`]);
    }
    return h("article", { class: `member ${it.verdict} ${it.role}`, tabindex: -1 },
      h("div", { class: "head" }, h("b", {}, `${ROLES[it.role] || it.role} ${it.slot}`), h("b", { class: `verdict-${it.verdict}` }, it.verdict), h("span", {}, `${it.tokens} tokens${it.ended ? "" : ", truncated"}`), it.mean_log_prob === undefined ? null : h("span", { title: "mean log-probability of a token" }, `log p ${num(it.mean_log_prob, 3)}`)),
      long(it.completion, `${state.run}-${state.rolloutStep}-${group.prompt_id}-${it.role}-${it.slot}`, it.cut_from, parted?.at),
      rows.length ? h("dl", { class: "why" }, rows.map(([label, text]) => [h("dt", {}, label), h("dd", { dir: "auto" }, String(text).slice(0, CUT))])) : null);
  }
  // Text of any length: its beginning, and the rest on demand.
  function long(text, key, cutFrom, mark) {
    const pre = h("pre", { dir: "auto" });
    const box = h("div", {}, pre);
    const carried = cutFrom ? `The page carries the first ${text.length.toLocaleString("en")} characters of ${cutFrom.toLocaleString("en")} bytes.` : null;
    const show = () => {
      const whole = text.length <= CUT || state.opened.has(key);
      // No half of a surrogate pair at the end.
      const end = /[\ud800-\udbff]/.test(text[CUT - 1] || "") ? CUT - 1 : CUT;
      const shown = whole ? text : `${text.slice(0, end)}…`;
      if (mark && mark < shown.length) pre.replaceChildren(h("span", { class: "same" }, shown.slice(0, mark)), h("mark", { title: "here it leaves the correct answer" }), shown.slice(mark));
      else pre.textContent = shown;
      if (text === "") pre.textContent = "(empty)";
    };
    show();
    if (text.length > CUT) {
      const button = h("button", {}, "");
      const label = () => { button.textContent = state.opened.has(key) ? "show less" : `show all (${text.length.toLocaleString("en")} characters)`; };
      button.addEventListener("click", () => { if (!state.opened.delete(key)) state.opened.add(key); show(); label(); });
      label();
      box.append(button);
    }
    if (carried) box.append(h("p", { class: "help" }, carried));
    return box;
  }

  // ---- start ----
  function take(buffer) {
    state.data = parse(buffer);
    build();
    refresh();
    document.body.dataset.ready = state.data.lastStep;
  }
  // A page that is written again comes back to where the reader was, but not while he reads rollouts.
  function again(seconds) {
    scrollTo(0, Number(sessionStorage.getItem("scroll")));
    setInterval(() => {
      if ($("rollouts").contains(document.activeElement)) return;
      sessionStorage.setItem("scroll", scrollY);
      location.reload();
    }, seconds * 1000);
  }
  (async () => {
    const stored = $("data");
    if (typeof DecompressionStream === "undefined") { $("subtitle").textContent = "This browser cannot unpack the page's data: it needs DecompressionStream (2023 or later)."; return; }
    const text = stored.textContent;
    stored.remove();
    take(await unpacked(text));
    if (state.data.every) again(state.data.every);
    // Two frames later the first figures are on the screen.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("shown")));
  })();
})();
