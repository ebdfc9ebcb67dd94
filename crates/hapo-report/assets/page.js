"use strict";
// Draws a report from its block of data. Whatever comes from a run is set as text, never as markup.
(() => {
  const CUT = 2000;
  const SVG = "http://www.w3.org/2000/svg";
  const state = { data: null, hidden: new Set(), step: null, follow: true, smoothing: null, bands: true, run: 0, rolloutStep: null, axis: "step", search: "", verdict: "all", group: 0, member: 0, rollouts: null, opened: new Set() };
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
  const s = (tag, attributes, ...children) => add(document.createElementNS(SVG, tag), attributes, children);
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
      run.steps = run.column.step || new Float64Array(0);
      run.at = { step: run.steps, tokens: summed(run, (column, i) => column["tokens_per_second/train"]?.[i] * column["time/train"]?.[i]), hours: summed(run, (column, i) => column["time/step"]?.[i] / 3600) };
    }
    data.lastStep = Math.max(0, ...data.runs.map((it) => (it.rows ? it.steps[it.rows - 1] : 0)));
    return data;
  }
  // Sums of a number of each row up to that row; what was not measured adds nothing.
  function summed(run, of) {
    let sum = 0;
    return run.steps.map((_, i) => (sum += of(run.column, i) || 0));
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

  // Runs drawn as one: each by itself, or the seeds of a recipe.
  function sets() {
    const shown = new Set(shownRuns());
    const groups = state.bands ? state.data.seed_groups : state.data.runs.map((_, i) => [i]);
    const all = groups.map((group, colour) => ({ colour: state.bands ? colour : group[0], runs: group.filter((it) => shown.has(it)) })).filter((it) => it.runs.length);
    for (const it of all) it.name = it.runs.length === 1 ? state.data.runs[it.runs[0]].name : `${state.data.runs[it.runs[0]].name} (${it.runs.length} seeds)`;
    return all;
  }
  // Steps, their places on the chosen axis, means, lowest and highest of a metric over the runs of a set.
  function curve(set, metric) {
    const runs = set.runs.map((it) => state.data.runs[it]).filter((it) => it.column[metric]);
    const by = new Map();
    for (const run of runs) {
      const values = run.column[metric], at = run.at[state.axis];
      for (let i = 0; i < values.length; i++) {
        const value = values[i];
        if (!Number.isFinite(value)) continue;
        const it = by.get(run.steps[i]);
        if (!it) by.set(run.steps[i], [value, 1, value, value, at[i]]);
        else { it[0] += value; it[1]++; it[2] = Math.min(it[2], value); it[3] = Math.max(it[3], value); it[4] += at[i]; }
      }
    }
    const steps = [...by.keys()].sort((a, b) => a - b);
    const rows = steps.map((it) => by.get(it));
    const found = { steps, x: rows.map((it) => it[4] / it[1]), y: rows.map((it) => it[0] / it[1]) };
    return runs.length === 1 ? found : { ...found, low: rows.map((it) => it[2]), high: rows.map((it) => it[3]) };
  }
  function smoothed(values, window) {
    if (window <= 1 || !values) return values;
    const out = new Array(values.length);
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      sum += values[i];
      if (i >= window) sum -= values[i - window];
      out[i] = sum / Math.min(i + 1, window);
    }
    return out;
  }

  // ---- charts ----
  const M = { left: 46, right: 10, top: 14, bottom: 36, height: 226 };
  const AXES = { step: "step", tokens: "trained tokens", hours: "hours of wall clock" };
  function linearTicks(low, high, n) {
    const rough = Math.max(high - low, 1e-300) / n;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough * 0.999999);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 3 * n; i++) ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
  }
  function axisOf(scale, curves) {
    let low = Infinity, high = -Infinity;
    for (const it of curves) for (const values of [it.low || it.y, it.high || it.y]) for (const value of values) {
      if (scale === "log" && !(value > 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) { low = scale === "log" ? 0.1 : 0; high = 1; }
    if (scale === "log") {
      let a = Math.floor(Math.log10(low)), b = Math.ceil(Math.log10(high));
      if (b <= a) b = a + 1;
      const every = Math.max(1, Math.ceil((b - a) / 5));
      const ticks = [];
      for (let i = a; i <= b; i += every) ticks.push(10 ** i);
      return { place: (it) => (it > 0 ? (Math.log10(it) - a) / (b - a) : NaN), ticks };
    }
    if (scale === "from-zero") { low = Math.min(low, 0); high = Math.max(high, 0); }
    // Equal values lie in the middle, zeros at the bottom.
    const room = high > low ? (high - low) * 0.05 : Math.abs(high) * 0.1 || 1;
    if (low !== 0) low -= room;
    if (high !== 0 || low === 0) high += room;
    return { place: (it) => (it - low) / (high - low), ticks: linearTicks(low, high, 5) };
  }
  function tickText(it) {
    const size = Math.abs(it);
    if (size >= 1e5 && size < 1e12) { const power = size >= 1e9 ? 9 : size >= 1e6 ? 6 : 3; return `${Number((it / 10 ** power).toPrecision(3))}${{ 3: "k", 6: "M", 9: "G" }[power]}`; }
    return it !== 0 && (size >= 1e12 || size < 1e-3) ? it.toExponential(0).replace("e+", "e") : String(Number(it.toPrecision(6)));
  }
  const round = (it) => Math.round(it * 10) / 10;
  // The horizontal axis of curves: first and last value, pixels, steps and ticks.
  function axisX(curves, width) {
    const byStep = state.axis === "step";
    const longest = curves.reduce((a, b) => (b.x[b.x.length - 1] > a.x[a.x.length - 1] ? b : a));
    const first = byStep ? 1 : 0;
    const last = Math.max(byStep ? 2 : 1e-9, longest.x[longest.x.length - 1]);
    const inner = width - M.left - M.right;
    const toX = (it) => M.left + (inner * (it - first)) / (last - first);
    // Index of the longest curve's point at a step, the last one before it.
    const indexOf = (step) => { let i = 0; while (i + 1 < longest.steps.length && longest.steps[i + 1] <= step) i++; return i; };
    const ofStep = (step) => toX(byStep ? Math.min(last, Math.max(first, step)) : longest.x[indexOf(step)]);
    const toStep = (pixel) => {
      const value = Math.min(last, Math.max(first, first + ((pixel - M.left) * (last - first)) / inner));
      if (byStep) return Math.round(value);
      let low = 0, high = longest.x.length - 1;
      while (low < high) { const middle = (low + high) >> 1; if (longest.x[middle] < value) low = middle + 1; else high = middle; }
      return longest.steps[low];
    };
    const round = linearTicks(first, last, width < 420 ? 4 : 6).filter((it) => it >= first && (!byStep || Number.isInteger(it)));
    const apart = inner / 9;
    const ticks = [first, ...(byStep ? [last] : [])];
    for (const it of round) if (ticks.every((other) => Math.abs(toX(it) - toX(other)) > apart)) ticks.push(it);
    return { first, last, toX, ofStep, toStep, ticks };
  }
  function drawAxisX(axis, width, height) {
    const parts = [];
    for (const it of axis.ticks) {
      const x = round(axis.toX(it));
      parts.push(s("line", { class: "tick", x1: x, x2: x, y1: height - M.bottom, y2: height - M.bottom + 4 }), s("text", { x, y: height - M.bottom + 15, "text-anchor": it === axis.last && it !== axis.first ? "end" : "middle" }, tickText(it)));
    }
    parts.push(s("line", { class: "tick", x1: M.left, x2: width - M.right, y1: height - M.bottom, y2: height - M.bottom }), s("text", { x: (M.left + width - M.right) / 2, y: height - 4, "text-anchor": "middle" }, AXES[state.axis]));
    return parts;
  }

  // A path of points; where there are more than pixels, the lowest and highest of each pixel. What the axis cannot show is a gap.
  function path(x, y, toX, toY, width) {
    if (!x.length) return "";
    let out = "", pen = "M";
    if (x.length <= 2 * width) {
      for (let i = 0; i < x.length; i++) {
        const place = toY(y[i]);
        if (!Number.isFinite(place)) { pen = "M"; continue; }
        out += `${pen}${round(toX(x[i]))} ${round(place)}${pen === "M" ? "h0.1" : ""}`; pen = "L";
      }
      return out;
    }
    for (let i = 0; i < x.length;) {
      const pixel = Math.floor(toX(x[i]));
      let low = Infinity, high = -Infinity, last = NaN;
      for (; i < x.length && Math.floor(toX(x[i])) === pixel; i++) { if (Number.isFinite(toY(y[i]))) { low = Math.min(low, y[i]); high = Math.max(high, y[i]); last = y[i]; } }
      if (low > high) { pen = "M"; continue; }
      out += `${pen}${pixel} ${round(toY(low))}`; pen = "L";
      if (high > low) out += `L${pixel} ${round(toY(high))}L${pixel} ${round(toY(last))}`;
    }
    return out;
  }

  const stacked = (figure) => figure.scale === "stacked";
  function curvesOf(figure, all) {
    const curves = [];
    all.forEach((set) => figure.lines.forEach((line, dash) => {
      const it = curve(set, line.metric);
      if (!it.x.length) return;
      const alone = all.length === 1 || stacked(figure);
      const window = state.smoothing;
      curves.push({ ...it, set, line, dash, colour: (alone ? dash : set.colour) % 7, label: all.length === 1 ? line.label : `${set.name}: ${line.label}`, raw: it.y, y: smoothed(it.y, window), low: smoothed(it.low, window), high: smoothed(it.high, window) });
    }));
    // A line that is zero throughout says nothing beside others that are not.
    const alive = curves.filter((it) => it.raw.some((value) => value !== 0));
    return stacked(figure) || !alive.length ? curves : alive;
  }
  function drawChart(chart) {
    const { figure } = chart;
    const all = sets();
    const curves = curvesOf(figure, all);
    chart.curves = curves;
    chart.node.hidden = !curves.length;
    if (!curves.length) return;
    const width = Math.max(260, chart.svg.clientWidth || 400);
    chart.x = axisX(curves, width);
    const frames = stacked(figure) ? all.filter((set) => curves.some((it) => it.set === set)) : [null];
    const height = stacked(figure) ? Math.max(M.height, frames.length * 96 + M.top + M.bottom) : M.height;
    const parts = stacked(figure) ? drawStacks(chart, curves, frames, width, height) : drawLines(chart, curves, all, width);
    parts.push(...drawAxisX(chart.x, width, height));
    chart.cursor = s("line", { class: "cursor", y1: M.top, y2: height - M.bottom });
    parts.push(chart.cursor);
    chart.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    chart.svg.style.height = `${height}px`;
    chart.svg.replaceChildren(...parts);
    chart.legend.replaceChildren(...curves.map((it) => {
      it.output = h("output", {});
      const mark = stacked(figure) ? s("rect", { class: `f${it.colour}`, width: 28, height: 8 }) : s("line", { class: `c${it.colour} d${it.dash}`, x1: 0, x2: 28, y1: 4, y2: 4 });
      return h("li", {}, s("svg", { viewBox: "0 0 28 8", "aria-hidden": "true" }, mark), name(it.label), it.output);
    }));
    readOut(chart);
  }
  function drawLines(chart, curves, all, width) {
    const { toX } = chart.x;
    const axis = axisOf(chart.figure.scale, curves);
    const toY = (it) => M.top + (M.height - M.top - M.bottom) * (1 - axis.place(it));
    const parts = [];
    const gated = chart.figure.phases ? all.map((it) => state.data.runs[it.runs[0]].gate).find((it) => it) : null;
    if (gated) parts.push(...phases(gated, chart.x));
    for (const tick of axis.ticks) parts.push(s("line", { class: "grid", x1: M.left, x2: width - M.right, y1: round(toY(tick)), y2: round(toY(tick)) }), s("text", { x: M.left - 5, y: round(toY(tick)) + 4, "text-anchor": "end" }, tickText(tick)));
    for (const it of curves) {
      if (it.low) parts.push(s("path", { class: `band f${it.colour}`, d: `${path(it.x, it.high, toX, toY, 1e9)}L${path([...it.x].reverse(), [...it.low].reverse(), toX, toY, 1e9).slice(1)}Z` }));
      if (state.smoothing > 1 && all.length === 1) parts.push(s("path", { class: `raw c${it.colour}`, d: path(it.x, it.raw, toX, toY, width) }));
    }
    for (const it of curves) parts.push(s("path", { class: `line c${it.colour} d${it.dash}`, d: path(it.x, it.y, toX, toY, width) }));
    return parts;
  }
  // A frame for each run, in it its lines on top of each other as areas.
  function drawStacks(chart, curves, frames, width, height) {
    const { toX } = chart.x;
    const each = (height - M.top - M.bottom) / frames.length;
    return frames.flatMap((set, at) => {
      const lines = curves.filter((it) => it.set === set);
      const below = M.top + each * (at + 1) - 4, inner = each - 18;
      const steps = lines[0].steps.map((_, i) => lines.reduce((sum, it) => sum + (it.y[i] || 0), 0));
      const most = Math.max(1e-9, ...steps);
      const toY = (it) => below - (inner * it) / most;
      const parts = [s("text", { x: M.left, y: below - inner - 4 }, frames.length > 1 ? set.name : ""), s("text", { x: M.left - 5, y: round(toY(most)) + 4, "text-anchor": "end" }, tickText(Number(most.toPrecision(3)))), s("text", { x: M.left - 5, y: below + 4, "text-anchor": "end" }, 0)];
      let floor = lines[0].x.map(() => 0);
      for (const it of lines) {
        const top = floor.map((value, i) => value + (it.y[i] || 0));
        parts.push(s("path", { class: `stack f${it.colour}`, d: `${path(it.x, top, toX, toY, 1e9)}L${path([...it.x].reverse(), [...floor].reverse(), toX, toY, 1e9).slice(1)}Z` }));
        floor = top;
      }
      return parts;
    });
  }
  function phases(gate, axis) {
    const parts = [];
    const { ofStep } = axis;
    const lastStep = axis.toStep(1e9);
    const end = gate.extinct_at_step ?? lastStep + 1;
    const anneal = gate.annealing_from ?? end;
    const area = (className, from, to, label) => {
      const [a, b] = [ofStep(Math.max(1, from)), ofStep(Math.min(lastStep, to))];
      if (b <= a) return;
      parts.push(s("rect", { class: className, x: round(a), y: M.top, width: round(b - a), height: M.height - M.top - M.bottom }));
      if (b - a > 34) parts.push(s("text", { x: round(a) + 3, y: M.top - 3 }, label));
    };
    area("open", 1, Math.min(anneal, end), "open");
    area("annealing", anneal, end, "annealing");
    if (gate.extinct_at_step && gate.extinct_at_step <= lastStep) {
      const x = round(ofStep(gate.extinct_at_step));
      const right = axis.toX(axis.last) - x > 90;
      parts.push(s("line", { class: "extinct", x1: x, x2: x, y1: M.top - 10, y2: M.height - M.bottom }), s("text", { x: right ? x + 3 : x - 3, y: M.top - 3, "text-anchor": right ? "start" : "end" }, right ? `extinct, e* = ${gate.extinct_at_step}` : ""));
    }
    return parts;
  }
  function readOut(chart) {
    if (!chart.curves || !chart.curves.length) return;
    const x = round(chart.x.ofStep(Math.max(1, state.step)));
    chart.cursor.setAttribute("x1", x);
    chart.cursor.setAttribute("x2", x);
    const said = [];
    for (const it of chart.curves) {
      const values = it.set.runs.map((run) => valueAt(state.data.runs[run], it.line.metric, state.step)).filter((value) => Number.isFinite(value));
      let text = "–";
      if (values.length === 1) text = num(values[0]);
      else if (values.length) text = `${num(values.reduce((a, b) => a + b) / values.length)} [${num(Math.min(...values))}, ${num(Math.max(...values))}]`;
      it.output.textContent = text;
      said.push(`${it.label} ${text}`);
    }
    if (chart.pointed) showTip(chart, x);
    chart.svg.setAttribute("aria-valuetext", `step ${state.step}: ${said.join(", ")}`);
    chart.svg.setAttribute("aria-valuenow", state.step);
    chart.svg.setAttribute("aria-valuemax", state.data.lastStep);
  }
  // What lies under the pointer: the step and the value of each line.
  function showTip(chart, x) {
    chart.tip.replaceChildren(h("b", {}, `step ${state.step}`), ...chart.curves.map((it) => h("div", {}, h("i", { class: `swatch f${it.colour}` }), h("bdi", {}, it.label), h("span", {}, it.output.textContent))));
    chart.tip.hidden = false;
    const share = x / chart.svg.viewBox.baseVal.width;
    chart.tip.style.left = share < 0.5 ? `${share * 100}%` : "auto";
    chart.tip.style.right = share < 0.5 ? "auto" : `${(1 - share) * 100}%`;
  }
  const charts = [];
  function buildCharts() {
    near.disconnect();
    charts.length = 0;
    $("charts").append(...state.data.figures.map(chartOf));
  }
  // A figure of its own for every metric that no other shows; a run may begin to log one late.
  function moreCharts() {
    const known = new Set(charts.map((it) => it.figure.id));
    const drawn = new Set(state.data.figures.flatMap((it) => it.lines.map((line) => line.metric)));
    const others = [...new Set(state.data.runs.flatMap((it) => it.columns))].filter((it) => !drawn.has(it) && it !== "step" && it !== "epoch" && it !== "time/unix");
    for (const metric of others) if (!known.has(`metric-${metric}`)) $("more-charts").append(chartOf({ id: `metric-${metric}`, title: metric, unit: "", help: "", lines: [{ metric, label: metric }], scale: "fitted", phases: false }));
  }
  function chartOf(figure) {
    const svg = s("svg", { class: "chart", tabindex: 0, role: "slider", "aria-label": `${figure.title} by step`, "aria-valuemin": 1, "aria-valuenow": 1, "aria-orientation": "horizontal" });
    const legend = h("ul", { class: "legend" });
    const tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    const node = h("figure", { id: `figure-${figure.id}` }, h("figcaption", {}, figure.title, figure.unit ? h("small", {}, ` · ${figure.unit}`) : null), figure.help ? h("p", { class: "help" }, figure.help) : null, h("div", { class: "frame" }, svg, tip), legend);
    const chart = { figure, svg, tip, legend, node, drawn: -1, pointed: false };
    svg.addEventListener("pointermove", (event) => {
      if (!chart.x) return;
      chart.pointed = true;
      const box = svg.getBoundingClientRect();
      setStep(chart.x.toStep(((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width));
    });
    svg.addEventListener("pointerleave", () => { chart.pointed = false; tip.hidden = true; });
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      setStep(state.step + by);
    });
    chart.seen = false;
    charts.push(chart);
    near.observe(node);
    return node;
  }
  // Only figures near the screen are drawn; the others when they come near.
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.find((it) => it.node === entry.target);
      if (!chart) continue;
      chart.seen = entry.isIntersecting;
      if (chart.seen && chart.drawn !== version) draw(chart);
    }
  }, { rootMargin: "600px" });
  let version = 0;
  // Printing, and a jump down the page, want the figures that were never near.
  function drawAll() { for (const it of charts) if (!it.node.hidden && it.drawn !== version && !it.node.closest("details:not([open])")) draw(it); }
  addEventListener("beforeprint", drawAll);
  addEventListener("click", (event) => { if (state.data && event.target.closest("nav a")) drawAll(); });
  function draw(chart) { chart.drawn = version; drawChart(chart); }
  function redraw() {
    version++;
    for (const chart of charts) {
      // A figure without numbers is hidden, and one that is hidden never comes near.
      const any = chart.figure.lines.some((line) => state.data.runs.some((run) => run.column[line.metric] && run.column[line.metric].some(Number.isFinite)));
      if (!any) { chart.node.hidden = true; continue; }
      if (chart.node.hidden) chart.node.hidden = false;
      if (chart.seen) draw(chart);
    }
  }

  // ---- the step at hand ----
  function setStep(step, follow) {
    const last = Math.max(1, state.data.lastStep);
    state.step = Math.min(last, Math.max(1, Math.round(step) || 1));
    state.follow = follow ?? state.step === last;
    $("step").value = state.step;
    $("step").max = $("step-range").max = last;
    $("step-range").value = state.step;
    for (const it of charts) if (it.seen && it.drawn === version) readOut(it);
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
          return h("td", { class: "n", title: Number.isNaN(value) ? "not logged" : String(value) }, num(value, 6));
        })))));
    });
  }

  // ---- sections ----
  const section = (id, title, ...children) => h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
  function build() {
    const spread = state.data.seed_groups.some((it) => it.length > 1);
    $("main").replaceChildren(
      section("runs", "Runs", h("div", { class: "cards", id: "cards" })),
      section("figures", "Figures",
        h("div", { class: "controls" },
          h("label", {}, "Smoothing", h("select", { id: "smoothing", onchange: (event) => { state.smoothing = Number(event.target.value); redraw(); } }, [1, 5, 10, 20, 50].map((it) => h("option", { value: it }, it === 1 ? "none" : `mean over ${it} steps`)))),
          h("label", {}, "Axis", h("select", { id: "axis", onchange: (event) => { state.axis = event.target.value; redraw(); } }, Object.entries(AXES).map(([value, text]) => h("option", { value }, text)))),
          spread ? h("label", {}, h("input", { type: "checkbox", id: "bands", checked: state.bands, onchange: (event) => { state.bands = event.target.checked; redraw(); } }), "Seeds as bands: mean, lowest, highest") : null,
          h("span", { class: "help" }, "Point at a figure, or focus it and press ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), ", to read a step.")),
        h("div", { class: "charts", id: "charts" }),
        h("figure", { id: "time" }),
        h("details", { id: "more" }, h("summary", {}, "More metrics"), h("div", { class: "charts", id: "more-charts" }))),
      section("answers", "Answers", h("div", { id: "answer-tables" })),
      section("evaluation", "Evaluation", h("div", { id: "tables" })),
      section("numbers", "Numbers of a step",
        h("div", { class: "controls" },
          h("button", { id: "step-before", onclick: () => setStep(state.step - 1), "aria-label": "Step before" }, "←"),
          h("label", {}, "Step", h("input", { id: "step", type: "number", min: 1, onchange: (event) => setStep(Number(event.target.value)) })),
          h("button", { id: "step-after", onclick: () => setStep(state.step + 1), "aria-label": "Step after" }, "→"),
          h("input", { id: "step-range", type: "range", min: 1, "aria-label": "Step", oninput: (event) => setStep(Number(event.target.value)) })),
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers of the step" }, h("table", { id: "numbers-table" }))),
      section("recipe", "Recipe", h("div", { id: "recipes" })),
      section("rollouts", "Rollouts", h("div", { id: "browser" })));
    const longest = Math.max(0, ...state.data.runs.map((it) => it.rows));
    state.smoothing ??= longest >= 800 ? 20 : longest >= 200 ? 5 : 1;
    $("smoothing").value = state.smoothing;
    $("axis").value = state.axis;
    buildCharts();
    buildBrowser();
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width && state.data) { width = innerWidth; redraw(); } });
  function refresh() {
    const { runs } = state.data;
    $("subtitle").textContent = runs.length === 1 ? runs[0].path : `${runs.length} runs`;
    $("cards").replaceChildren(...runs.map((run, i) => {
      const set = state.data.seed_groups.findIndex((it) => it.includes(i));
      return h("article", { class: "card" },
        h("h3", {}, runs.length > 1 ? h("input", { type: "checkbox", checked: !state.hidden.has(run.name), "aria-label": `Show ${run.name}`, onchange: (event) => { if (event.target.checked) state.hidden.delete(run.name); else state.hidden.add(run.name); redraw(); numbers(); } }) : null,
          runs.length > 1 ? h("span", { class: `swatch f${(state.bands ? set : i) % 7}`, "aria-hidden": "true" }) : null, name(run.name)),
        h("div", { class: "help" }, [run.method, run.seed === null ? null : `seed ${run.seed}`].filter((it) => it).join(" · ")),
        h("dl", {}, [...run.facts, ...dates(run)].map((it) => [h("dt", {}, it.label), h("dd", {}, it.text)])),
        run.notes.map((it) => h("p", { class: "note" }, it)));
    }));
    timeBars();
    tables();
    answers();
    recipes();
    moreCharts();
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
  function timeBars() {
    const runs = state.data.runs.filter((it) => it.time.some((part) => part.seconds > 0));
    $("time").hidden = !runs.length;
    if (!runs.length) return;
    const labels = runs[0].time.map((it) => it.label);
    $("time").replaceChildren(
      h("figcaption", {}, "Where the time went"),
      h("div", { class: "bars" }, runs.map((run) => {
        const total = run.time.reduce((sum, it) => sum + it.seconds, 0);
        const text = run.time.map((it) => `${it.label} ${num((100 * it.seconds) / total, 3)} %`).join(", ");
        return [name(run.name), h("div", { class: "bar", role: "img", "aria-label": text, title: text }, run.time.map((it) => {
          const share = (100 * it.seconds) / total;
          const part = h("span", { class: `f${labels.indexOf(it.label) % 7}` }, share >= 8 ? `${share.toFixed(0)} %` : "");
          part.style.width = `${share}%`;
          return part;
        }))];
      })),
      h("div", { class: "keys" }, labels.map((it, i) => h("span", {}, h("i", { class: `swatch f${i % 7}` }), it))));
  }
  function cell(it) {
    if (typeof it === "number") return h("td", { class: "n", title: String(it) }, num(it));
    if (it && typeof it === "object") return h("td", { class: "n", title: String(it.mean) }, `${num(it.mean, 3)} [${num(it.low, 3)}, ${num(it.high, 3)}]`);
    return h("td", { dir: "auto" }, it);
  }
  function tables() {
    const all = state.data.tables;
    if (!all.length) {
      $("tables").replaceChildren(h("p", { class: "help" }, "No evaluation lies in the run folder. ", h("code", {}, "hapo eval --model RUN/checkpoints/step-… --json > RUN/eval.json"), " puts one here."));
      return;
    }
    $("tables").replaceChildren(...all.map((it) => tableOf(it, " · brackets hold 95 % intervals")));
  }
  function answers() {
    const all = state.data.answers;
    $("answer-tables").replaceChildren(...all.length
      ? all.map((it) => tableOf(it, " · shares of the responses of these steps"))
      : [h("p", { class: "help" }, "No run here logs what its responses give as answers.")]);
  }
  function tableOf(table, about) {
    // The column that names a row comes first.
    const first = table.columns.findIndex((it) => ["model", "benchmark", "steps"].includes(it));
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
    const compared = runs.length < 2 ? [] : [differs.size ? table([...differs], `${differs.size} keys differ`) : h("p", { class: "help" }, "The recipes are equal.")];
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
    if (stored) return JSON.parse(new TextDecoder().decode(await unpacked(stored.textContent)));
    const answer = await fetch(`rollouts/${run}/${step}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
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
    if (!state.data.live && run.rollout_steps.length < run.rollout_steps_kept) parts.push(`this page carries ${run.rollout_steps.length} of ${run.rollout_steps_kept} kept steps; hapo watch shows all`);
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
    const before = state.data;
    state.data = parse(buffer);
    const shape = (it) => it && JSON.stringify([it.runs.map((run) => run.name), it.seed_groups]);
    if (shape(before) !== shape(state.data)) build();
    refresh();
    document.body.dataset.ready = state.data.lastStep;
  }
  async function live() {
    const status = $("connection");
    status.hidden = false;
    let busy = false, again = false;
    const load = async () => {
      if (busy) { again = true; return; }
      busy = true;
      try {
        const answer = await fetch("data", { cache: "no-store" });
        if (answer.status === 204) { status.textContent = "waiting for a run"; } else if (answer.ok) {
          take(await answer.arrayBuffer());
          const states = state.data.runs.map((it) => it.state);
          status.textContent = states.includes("running") ? "live" : states.every((it) => it === "finished") ? "finished" : "no process trains";
        } else status.textContent = await answer.text();
      } catch { status.textContent = "connection lost"; }
      busy = false;
      if (again) { again = false; setTimeout(load, 300); }
    };
    const events = new EventSource("events");
    events.addEventListener("changed", load);
    events.addEventListener("error", () => { status.textContent = "connection lost, trying again"; });
  }
  (async () => {
    const stored = $("data");
    if (!stored) { live(); return; }
    if (typeof DecompressionStream === "undefined") { $("subtitle").textContent = "This browser cannot unpack the page's data: it needs DecompressionStream (2023 or later)."; return; }
    const text = stored.textContent;
    stored.remove();
    take(await unpacked(text));
    // Two frames later the first figures are on the screen.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("shown")));
  })();
})();
