
// --- images: choose a model and a threat, sort, search, and look at one ---

const images = JSON.parse(document.getElementById("image-data").textContent);
const explorer = document.querySelector(".explorer");
const KINDS = [
  ["L", "L-bound (heuristic)"], ["omega", "ω-bound (heuristic)"], ["calibrated", "calibrated bound"],
  ["certified", "certified, smoothed"], ["distance", "adversarial image found"],
];
const SHAPES = {
  L: "M0 -5V5", omega: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", calibrated: "M0 -4.5L4.5 0L0 4.5L-4.5 0z",
  certified: "M-3.5 -3.5h7v7h-7z", distance: "M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5",
};
const PAGE = 15;

function make(tag, attributes = {}, ...children) {
  const element = ["svg", "path", "text", "title", "g"].includes(tag)
    ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function significant(value) {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3)), magnitude = Math.floor(Math.log10(Math.abs(rounded)));
  return magnitude < -4 || magnitude >= 7 ? value.toExponential(1) : value.toFixed(Math.max(0, 2 - magnitude));
}
const said = (threat, value) => (threat.in255 ? `${significant(255 * value)}/255` : significant(value));

// What is known of an image in a threat, by kind.
function known(model, threat, row) {
  const found = model.threats[threat], values = {};
  for (const kind of ["L", "omega", "calibrated", "distance"]) {
    const value = found[kind]?.[row];
    if (value !== null && value !== undefined) values[kind] = value;
  }
  if (images.threats[threat].name === "l2") {
    const radii = model.smoothed.map((smoothed) => smoothed.radius[row]);
    if (radii.length) values.certified = Math.max(...radii);
  }
  return values;
}

// All of it on one line; what is beyond its end is drawn there.
function line(values, threat, colour) {
  const { end, radii } = images.threats[threat], width = 300;
  const at = (value) => (6 + (width - 12) * Math.min(value / end, 1)).toFixed(1);
  const svg = make("svg", { viewBox: `0 0 ${width} 20`, class: "on-line", "aria-hidden": "true" });
  svg.append(make("path", { class: "axis", d: `M6 10H${width - 6}` }));
  for (const [radius] of radii) svg.append(make("path", { class: "guide", d: `M${at(radius)} 1V19` }));
  for (const [kind, name] of KINDS) {
    if (values[kind] === undefined) continue;
    const title = make("title", {}, `${name}: ${said(images.threats[threat], values[kind])}`);
    const shape = { class: `sign ${kind} c${colour % 7}`, transform: `translate(${at(values[kind])} 10)`, d: SHAPES[kind] };
    svg.append(make("path", shape, title));
  }
  return svg;
}

if (explorer && images.threats.length) {
  const pick = (name) => document.getElementById(`pick-${name}`);
  const found = document.getElementById("found"), more = explorer.querySelector(".more");
  const body = explorer.querySelector("tbody"), dialog = explorer.querySelector("dialog");
  const pictures = new Map([...document.querySelectorAll("figure[data-row]")].map((each) => [each.dataset.row, each]));
  const key = (model, threat, row) => `${model} ${threat} ${row}`;
  let model = 0, threat = 0, rows = [], opened = -1, open = null;

  function threatsOfModel() {
    const there = Object.keys(images.models[model].threats).map(Number);
    if (!there.includes(threat)) threat = there[0] ?? -1;
    pick("threat").replaceChildren(...there.map((t) => make("option", { value: t }, images.threats[t].symbol)));
    pick("threat").value = threat;
  }

  function words(row) {
    const { index, label, prediction, threats } = images.models[model], values = threats[threat];
    const distance = values.distance[row];
    const state = distance === 0 ? "misclassified" : distance === null ? "unbroken" : "broken";
    const names = [images.classes[label[row]], images.classes[prediction[row]], images.attacks[values.winner[row]]];
    return [`#${index[row]}`, state, ...names].join(" ").toLowerCase();
  }

  function order(row) {
    const { index, margin, threats } = images.models[model], { distance, omega } = threats[threat];
    const d = distance[row] ?? Infinity;
    switch (pick("sort").value) {
      case "distance": return d || Number.POSITIVE_INFINITY; // misclassified ones have no adversarial image to be near
      case "farthest": return -d;
      case "margin": return -margin[row];
      case "violation": return omega && d > 0 ? -(omega[row] ?? Infinity) / d : 1;
      case "looseness": return omega && d > 0 && d < Infinity ? (omega[row] ?? Infinity) / d : Infinity;
      default: return index[row];
    }
  }

  function choose() {
    if (threat < 0) { rows = []; show(); return; }
    const asked = pick("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = images.models[model].index.map((_, row) => row).filter((row) => {
      if (pick("pictures").checked && !pictures.has(key(model, threat, row))) return false;
      const said = words(row).split(" ");
      return asked.every((word) => said.some((other) => (word[0] === "#" ? other === word : other.startsWith(word))));
    });
    const places = new Map(rows.map((row) => [row, order(row)]));
    rows.sort((a, b) => (places.get(a) === places.get(b) ? a - b : places.get(a) - places.get(b)));
    body.replaceChildren();
    show();
    const all = images.models[model].index.length;
    found.textContent = `${rows.length} of ${all} images`;
  }

  function show() {
    const start = body.rows.length;
    for (const row of rows.slice(start, start + PAGE)) body.append(entry(row));
    more.hidden = body.rows.length >= rows.length;
  }

  function entry(row) {
    const { index, label, prediction } = images.models[model], values = known(images.models[model], threat, row);
    const picture = pictures.get(key(model, threat, row))?.querySelector("img");
    const button = make("button", { type: "button", "aria-haspopup": "dialog" }, `#${index[row]}`);
    if (picture) button.prepend(make("img", { src: picture.src, alt: "" }));
    const wrong = label[row] !== prediction[row];
    const distance = wrong ? "misclassified" : values.distance === undefined ? "unbroken"
      : said(images.threats[threat], values.distance);
    const winner = images.attacks[images.models[model].threats[threat].winner[row]];
    const taken = wrong ? images.classes[prediction[row]] : values.distance === undefined ? "–" : winner;
    const drawn = make("td", { class: "lined" }, line(values, threat, model));
    const cells = [make("th", { scope: "row" }, button), make("td", {}, images.classes[label[row]]),
      make("td", { class: "number" }, distance), drawn, make("td", {}, taken)];
    const line_ = make("tr", {}, ...cells);
    line_.addEventListener("click", () => look(rows.indexOf(row), button));
    return line_;
  }

  function look(place, from = open) {
    if (place < 0 || place >= rows.length) return;
    [opened, open] = [place, from];
    const row = rows[place], here = images.models[model], about = images.threats[threat];
    const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "✕");
    close.addEventListener("click", () => dialog.close());
    const figure = pictures.get(key(model, threat, row));
    const rival = here.label[row] === here.prediction[row]
      ? figure?.querySelector("figcaption b + b")?.textContent : images.classes[here.prediction[row]];
    const name = `Image ${here.index[row]}: ${images.classes[here.label[row]]}${rival ? ` → ${rival}` : ""}`;
    const heading = make("h3", { id: "one-h", tabindex: "-1" }, name);
    const step = (text, name, by) => {
      const button = make("button", { type: "button", "aria-label": name }, text);
      button.disabled = place + by < 0 || place + by >= rows.length;
      button.addEventListener("click", () => look(place + by));
      return button;
    };
    const steps = make("p", { class: "steps" }, step("←", "Previous image", -1), `${place + 1} of ${rows.length}`,
      step("→", "Next image", 1));
    const parts = [close, heading, steps];
    if (figure) {
      const shown = make("div", { class: "looked" });
      for (const part of figure.querySelectorAll(".pictures, .way")) shown.append(part.cloneNode(true));
      const titles = make("div", { class: "titles" }, ...["image", "adversarial", "difference"].map((t) => make("span", {}, t)));
      shown.prepend(titles);
      if (shown.querySelector(".way")) {
        const told = "Margin of probabilities, −1 to 1, from the image through the adversarial one (dotted): above the line the model is wrong.";
        shown.append(make("p", { class: "note" }, told));
      }
      parts.push(shown);
    } else parts.push(make("p", { class: "note" }, "No picture of it was kept."));
    parts.push(make("p", { class: "marks" }, ...legend()));
    const table = make("table", { class: "others" });
    images.models.forEach((other, number) => {
      const there = other.index.indexOf(here.index[row]);
      if (there < 0 || !other.threats[threat] || (!shown(number) && number !== model)) return;
      const values = known(other, threat, there);
      const texts = KINDS.filter(([kind]) => values[kind] !== undefined)
        .map(([kind, name]) => `${name.replace(/ \(.*| found|, smoothed/, "")} ${said(about, values[kind])}`);
      if (values.distance === undefined) texts.push("no adversarial image found");
      if (other.label[there] !== other.prediction[there]) texts.unshift(`misclassified as ${images.classes[other.prediction[there]]}`);
      const cell = make("td", {}, line(values, threat, number), make("small", { class: "note" }, texts.join(", ")));
      table.append(make("tr", {}, make("th", { scope: "row" }, other.name), cell));
    });
    parts.push(make("p", { class: "note" }, `${about.symbol} distances of all models that are shown; dotted: the usual radii.`), table);
    dialog.replaceChildren(...parts);
    if (!dialog.open) dialog.showModal();
    heading.focus();
    spoken.textContent = heading.textContent;
  }

  function legend() {
    const there = KINDS.filter(([kind]) => images.models.some((each) => kind === "certified"
      ? each.smoothed.length : Object.values(each.threats).some((one) => one[kind])));
    return there.map(([kind, name]) => make("span", {}, make("svg", { viewBox: "-7 -7 14 14", "aria-hidden": "true" },
      make("path", { class: `sign ${kind} ink`, d: SHAPES[kind] })), name));
  }

  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") look(opened + 1);
    else if (event.key === "ArrowLeft") look(opened - 1);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { dialog.replaceChildren(); open?.focus(); });
  more.addEventListener("click", () => {
    const start = body.rows.length;
    show();
    body.rows[start]?.querySelector("button").focus();
  });
  pick("model").addEventListener("change", () => { model = Number(pick("model").value); threatsOfModel(); choose(); });
  pick("threat").addEventListener("change", () => { threat = Number(pick("threat").value); choose(); });
  for (const name of ["sort", "search", "pictures"]) pick(name).addEventListener("input", choose);
  explorer.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  explorer.querySelector(".marks").append(...legend());
  dialog.setAttribute("aria-labelledby", "one-h");
  explorer.hidden = false;
  threatsOfModel();
  choose();
}
