"use strict";
// The data come from the server, or lie in the page itself: window.STUDIES, of a static build.
const stored = window.STUDIES || null;
const $ = (id) => document.getElementById(id);
const COLOURS = { "c·I + low rank": "--rank", "largest entries": "--entries", "diagonal + low rank": "--diagonal" };
const CLASSES = { "c·I + low rank": "rank", "largest entries": "entries", "diagonal + low rank": "diagonal" };
const UNITS = { floats: "floats", bytes: "bytes", multiply_adds: "multiply-adds", time: "µs" };
const POLL = 400; // milliseconds between two looks at fits that are being made
const state = { study: 0, overview: null, picked: null, unit: "floats", details: new Map(), layer: 0, generation: 0 };

async function ask(path, options) {
  const answer = await fetch(path, options);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error || answer.statusText);
  return value;
}
const source = {
  overview: () => (stored ? Promise.resolve(stored[state.study].overview) : ask("overview")),
  matrix: () => (stored ? Promise.resolve(stored[state.study].matrix) : ask("matrix")),
  detail: (k) => (stored ? Promise.resolve(stored[state.study].details[k]) : ask(`detail?rotations=${k}`)),
};

// ---- numbers as people read them
const whole = (x) => Math.round(x).toLocaleString("en").replaceAll(",", " ");
const degrees = (x) => (x >= 10 ? x.toFixed(1) : x.toFixed(2)) + "°";
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const fits = () => state.overview.fits;
const current = () => fits()[state.picked];

// What a rival reaches with this much: between two of its points, on a logarithmic axis.
function reached(rival, unit, amount) {
  const points = rival.points.filter((point) => point[unit] !== undefined);
  if (!points.length || amount < points[0][unit]) return null;
  let best = points[0].angle;
  for (let k = 1; k < points.length; k++) {
    const [a, b] = [points[k - 1], points[k]];
    if (amount >= b[unit]) { best = b.angle; continue; }
    const t = Math.log(amount / Math.max(1, a[unit])) / Math.log(b[unit] / Math.max(1, a[unit]));
    return a.angle + t * (b.angle - a.angle);
  }
  return best;
}

// ---- pictures
function paint(canvas, picture, label, largest = picture.largest) {
  const levels = Int8Array.from(atob(picture.levels), (c) => c.charCodeAt(0));
  canvas.width = canvas.height = picture.side;
  const context = canvas.getContext("2d"), image = context.createImageData(picture.side, picture.side);
  levels.forEach((level, k) => {
    // White is zero, blue is positive, orange negative; the root lets small entries be seen.
    const size = Math.sqrt(Math.min(1, (Math.abs(level) * picture.largest) / (127 * largest))), [r, g, b] = level >= 0 ? [0, 90, 160] : [205, 85, 0];
    image.data.set([255 + (r - 255) * size, 255 + (g - 255) * size, 255 + (b - 255) * size, 255], 4 * k);
  });
  context.putImageData(image, 0, 0);
  label.textContent = `largest entry ${picture.largest.toPrecision(3)}`;
}

// ---- charts
const make = (name, attributes, parent, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
};
const BOX = { left: 46, right: 508, top: 14, bottom: 262 };
const linear = (low, high, from, to) => (x) => from + ((x - low) / (high - low || 1)) * (to - from);
const logarithmic = (low, high, from, to) => {
  const scale = linear(Math.log10(low), Math.log10(high), from, to);
  return (x) => scale(Math.log10(Math.max(x, low)));
};
const path = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
// Round numbers from low to high, about five of them.
function ticks(low, high) {
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough), found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found;
}
function legend(id, items) {
  const line = $(id);
  line.replaceChildren();
  for (const [text, ink] of items) {
    const item = document.createElement("span");
    item.textContent = text;
    item.style.color = ink;
    line.append(item);
  }
}
const short = (x) => (x >= 1e6 ? `${+(x / 1e6).toPrecision(2)}M` : x >= 1e3 ? `${+(x / 1e3).toPrecision(2)}k` : `${+x.toPrecision(2)}`);

function drawAngles() {
  const svg = $("angles"), unit = state.unit, overview = state.overview;
  svg.replaceChildren();
  const ready = fits().filter((fit) => fit.ready && fit[unit] !== undefined);
  const amounts = [...ready.map((f) => f[unit]), ...overview.rivals.flatMap((r) => r.points.map((p) => p[unit]))].filter((x) => x > 0); // a form may have no known time
  const low = Math.max(unit === "time" ? 0 : overview.n / 2, Math.min(...amounts)), high = Math.max(...amounts);
  const most = Math.max(5, ...ready.map((f) => f.angle), ...overview.rivals.flatMap((r) => r.points.filter((p) => p[unit] >= low).map((p) => p.angle)));
  const X = logarithmic(low, high, BOX.left, BOX.right), Y = linear(0, most, BOX.bottom, BOX.top);
  for (const value of ticks(0, most)) {
    make("line", { x1: BOX.left, x2: BOX.right, y1: Y(value), y2: Y(value), class: "grid" }, svg);
    make("text", { x: BOX.left - 6, y: Y(value) + 4, "text-anchor": "end" }, svg, `${+value.toPrecision(3)}°`);
  }
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++)
    make("text", { x: X(10 ** power), y: BOX.bottom + 18, "text-anchor": "middle" }, svg, short(10 ** power));
  make("text", { x: BOX.right, y: BOX.bottom + 34, "text-anchor": "end" }, svg, UNITS[unit]);
  overview.rivals.forEach((rival) => {
    const points = rival.points.filter((p) => p[unit] >= low * 0.999).map((p) => [X(p[unit]), Y(p.angle)]);
    const ink = colour(COLOURS[rival.name]);
    if (points.length > 1) make("path", { d: path(points), class: "curve", stroke: ink }, svg);
    else if (points.length) make("circle", { cx: points[0][0], cy: points[0][1], r: 4, fill: ink, class: "dot" }, svg);
  });
  legend("angles-legend", [["this fit", colour("--ours")], ...overview.rivals.map((r) => [r.name, colour(COLOURS[r.name])])]);
  make("path", { d: path(ready.map((f) => [X(f[unit]), Y(f.angle)])), class: "curve", stroke: colour("--ours") }, svg);
  for (const fit of ready) {
    const here = fit === current();
    const dot = make("circle", { cx: X(fit[unit]), cy: Y(fit.angle), r: here ? 7 : 5, fill: colour("--ours"), class: "dot" }, svg);
    make("title", {}, dot, `${whole(fit.rotations)} rotations: ${degrees(fit.angle)}`);
    dot.addEventListener("click", () => pick(fits().indexOf(fit)));
  }
  if (current() && current().ready && current()[unit] !== undefined) make("line", { x1: X(current()[unit]), x2: X(current()[unit]), y1: BOX.top, y2: BOX.bottom, class: "now" }, svg);
}

function drawSpectrum(found) {
  const svg = $("spectrum"), truth = state.overview.spectrum;
  svg.replaceChildren();
  const positive = truth.filter((x) => x > 0), log = positive.length === truth.length && truth[0] > 30 * truth[truth.length - 1];
  const all = log ? [...truth, ...(found || []).filter((x) => x > truth[truth.length - 1] / 10)] : [...truth, ...(found || [])];
  const low = Math.min(...all), high = Math.max(...all);
  const X = linear(0, Math.max(1, truth.length - 1), BOX.left + 8, BOX.right), Y = (log ? logarithmic : linear)(low, high, BOX.bottom, BOX.top);
  const values = log ? ticks(Math.log10(low), Math.log10(high)).map((power) => 10 ** power) : ticks(low, high);
  for (const value of values) {
    make("line", { x1: BOX.left + 8, x2: BOX.right, y1: Y(value), y2: Y(value), class: "grid" }, svg);
    make("text", { x: BOX.left + 2, y: Y(value) + 4, "text-anchor": "end" }, svg, Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(0).replace("e+", "e") : `${+value.toPrecision(2)}`);
  }
  make("path", { d: path(truth.map((y, k) => [X(k), Y(y)])), class: "curve", stroke: colour("--soft") }, svg);
  if (found) make("path", { d: path(found.map((y, k) => [X(k), Y(y)])), class: "curve", stroke: colour("--ours"), "stroke-dasharray": "5 4" }, svg);
  legend("spectrum-legend", [["H", colour("--soft")], ["the fit, dashed", colour("--ours")]]);
}

function drawArcs(layers) {
  const svg = $("arcs"), n = state.overview.n;
  svg.replaceChildren();
  $("layer").max = Math.max(0, layers.length - 1);
  state.layer = Math.min(state.layer, Math.max(0, layers.length - 1));
  $("layer").value = state.layer;
  const pairs = layers[state.layer] || [], X = linear(0, n - 1, 14, 1046), base = 236;
  for (let i = 0; i < n; i += Math.max(1, Math.ceil(n / 260))) make("circle", { cx: X(i), cy: base, r: 1.6, fill: colour("--soft") }, svg);
  for (const [i, j, angle] of pairs) {
    const [a, b] = [X(Math.min(i, j)), X(Math.max(i, j))], height = 24 + (b - a) * 0.4;
    const ink = angle >= 0 ? colour("--ours") : colour("--rank");
    const arc = make("path", { d: `M${a.toFixed(1)} ${base}Q${((a + b) / 2).toFixed(1)} ${(base - height).toFixed(1)} ${b.toFixed(1)} ${base}`, class: "arc", stroke: ink }, svg);
    arc.style.opacity = 0.2 + 0.8 * Math.min(1, Math.abs(angle) / 45);
    make("title", {}, arc, `${i} and ${j}: ${angle}°`);
  }
  make("text", { x: 14, y: 254 }, svg, "coordinate 0");
  make("text", { x: 1046, y: 254, "text-anchor": "end" }, svg, `${n - 1}`);
  $("layer-label").textContent = layers.length ? `layer ${state.layer + 1} of ${layers.length}, ${pairs.length} rotations` : "no rotations";
}

// ---- the page
function numbers() {
  const fit = current(), box = $("numbers");
  box.replaceChildren();
  const add = (kind, value, label) => {
    const item = document.createElement("div"), big = document.createElement("b"), small = document.createElement("span");
    item.className = `number ${kind}`;
    big.textContent = value; small.textContent = label;
    item.append(big, small); box.append(item);
  };
  if (!fit.ready) {
    const working = state.overview.working, item = document.createElement("div");
    item.className = "number";
    item.textContent = `fitting ${whole(fit.rotations)} rotations …`;
    const bar = document.createElement("progress");
    if (working && working.budget === fit.rotations) { bar.max = 1; bar.value = working.done; }
    item.append(bar); box.append(item);
    return;
  }
  add("ours", degrees(fit.angle), `this fit, ${whole(fit.rotations)} rotations`);
  for (const rival of state.overview.rivals) {
    const angle = reached(rival, state.unit, fit[state.unit]);
    add(CLASSES[rival.name], angle === null ? "–" : degrees(angle), `${rival.name}, equal ${UNITS[state.unit]}`);
  }
  const dense = state.overview.dense[state.unit];
  if (dense) add("", `${(dense / fit[state.unit]).toFixed(1)}×`, `fewer ${UNITS[state.unit]} than dense`);
  add("", `${fit.seconds} s`, `to fit (${fit.method})`);
}

async function show() {
  const fit = current(), generation = ++state.generation;
  $("budget").max = fits().length - 1;
  $("budget").value = state.picked;
  $("amount").textContent = fit.ready && fit[state.unit] !== undefined ? `${whole(fit[state.unit])} ${UNITS[state.unit]}` : `${whole(fit.rotations)} rotations`;
  $("budget").setAttribute("aria-valuetext", $("amount").textContent);
  $("message").textContent = fit.ready ? fit.message : "";
  numbers();
  drawAngles();
  const link = $("download");
  link.hidden = Boolean(stored);
  link.href = `operator?rotations=${fit.rotations}`;
  link.setAttribute("aria-disabled", String(!fit.ready));
  if (!fit.ready) { drawSpectrum(null); return; }
  if (!state.details.has(fit.rotations)) state.details.set(fit.rotations, await source.detail(fit.rotations));
  if (generation !== state.generation) return; // the slider has moved on meanwhile
  const detail = state.details.get(fit.rotations);
  // All three on H's scale, so that what is left looks as small as it is.
  paint($("fit"), detail.fit, $("fit-scale"), state.largest);
  paint($("residual"), detail.residual, $("residual-scale"), state.largest);
  drawSpectrum(detail.spectrum);
  drawArcs(detail.layers);
}

function pick(index) { state.picked = index; show().catch(tell); }
function tell(error) { const notice = $("notice"); notice.textContent = error.message || error; notice.hidden = !notice.textContent; }

async function begin() {
  state.details.clear();
  state.layer = 0;
  state.overview = await source.overview();
  const ready = fits().findIndex((fit) => fit.ready), middle = Math.floor(fits().length / 2);
  state.picked = ready >= 0 && !stored ? ready : middle;
  $("name").textContent = `${state.overview.name}, ${state.overview.n} × ${state.overview.n}`;
  document.title = `${state.overview.name} · swallowtail explorer`;
  tell(state.overview.failure || state.overview.note || "");
  const matrix = await source.matrix();
  state.largest = matrix.largest;
  paint($("matrix"), matrix, $("matrix-scale"));
  await show();
  if (!stored) watch(state.overview.name);
}

async function watch(name) {
  while (state.overview.name === name && fits().some((fit) => !fit.ready) && !state.overview.failure) {
    await new Promise((done) => setTimeout(done, POLL));
    const before = fits().filter((fit) => fit.ready).length, fresh = await source.overview();
    if (fresh.name !== name) return;
    state.overview = fresh;
    if (fresh.failure) tell(fresh.failure);
    if (!before && fits().some((fit) => fit.ready)) pick(fits().findIndex((fit) => fit.ready));
    else if (fits().filter((fit) => fit.ready).length !== before) pick(state.picked);
    else numbers();
  }
}

async function upload(file) {
  tell(`reading ${file.name} …`);
  try {
    await ask(`upload?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    await begin();
  } catch (error) { tell(error); }
}

$("unit").addEventListener("change", (event) => { state.unit = event.target.value; show().catch(tell); });
$("budget").addEventListener("input", (event) => pick(Number(event.target.value)));
$("layer").addEventListener("input", (event) => { state.layer = Number(event.target.value); drawArcs(state.details.get(current().rotations)?.layers || []); });
$("play").addEventListener("click", () => {
  if (state.timer) { clearInterval(state.timer); state.timer = null; $("play").textContent = "play"; return; }
  $("play").textContent = "stop";
  state.timer = setInterval(() => {
    const layers = state.details.get(current().rotations)?.layers || [];
    state.layer = (state.layer + 1) % Math.max(1, layers.length);
    drawArcs(layers);
  }, 700);
});
$("file").addEventListener("change", (event) => event.target.files[0] && upload(event.target.files[0]));
$("open").addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") $("file").click(); });
if (stored) {
  $("open").hidden = true;
  $("study").hidden = stored.length < 2;
  stored.forEach((study, k) => $("study").append(new Option(study.overview.name, k)));
  $("study").addEventListener("change", (event) => { state.study = Number(event.target.value); begin().catch(tell); });
} else {
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
  });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show().catch(tell));
begin().catch(tell);
