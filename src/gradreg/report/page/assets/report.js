"use strict";
// Everything here is a convenience: the page is complete without it.

const spoken = document.getElementById("spoken");

// --- tables: a heading sorts by the figures behind the text, the good ones first ---

function sortBy(table, column, ascending) {
  const body = table.tBodies[0];
  const key = (row) => {
    const cell = row.cells[column];
    if (column === 0) return cell.textContent.trim();
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const rows = [...body.rows].map((row) => [key(row), row]);
  const sign = ascending ? 1 : -1;
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null); // what has no figure stays last
    return sign * (column === 0 ? a.localeCompare(b) : a - b);
  });
  body.append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.data")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      const ascending = now ? now === "descending" : heading.dataset.better !== "high";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sortBy(table, column, ascending);
      spoken.textContent = `Sorted by ${button.textContent.trim()}, ${ascending ? "ascending" : "descending"}.`;
    });
  });
}

// --- charts: the value under the mouse, or under the arrow keys ---

const readings = JSON.parse(document.getElementById("readings").textContent);
const SVG = "http://www.w3.org/2000/svg";

const shown = (model) => document.getElementById(`show-m${model}`)?.checked ?? true;

// The value of a step function at a place: that of the last step before it.
function stepAt(line, px) {
  let j = 0;
  while (j + 1 < line.at.length && line.at[j + 1][0] <= px) j += 1;
  return j;
}

function readable(plot, data) {
  const svg = plot.querySelector("svg");
  const box = svg.viewBox.baseVal;
  const all = data.series.filter((line) => line.at.length);
  if (!all.length) return;
  const lines = () => all.filter((line) => line.model === null || shown(line.model));
  const mark = (tag, name) => {
    const element = document.createElementNS(SVG, tag);
    element.setAttribute("class", name);
    return element;
  };
  const cursor = mark("circle", "cursor"), crosshair = mark("path", "crosshair");
  cursor.setAttribute("r", "4.5");
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  plot.append(readout);
  let at = null; // [line, point]

  // Beside curves, what all of them are at the same distance, the highest first.
  function others(line, px) {
    const list = document.createElement("ol");
    const found = lines().map((other) => [other, stepAt(other, px)]);
    found.sort(([a, i], [b, j]) => a.at[i][1] - b.at[j][1]);
    for (const [other, point] of found) {
      const row = document.createElement("li"), value = document.createElement("span");
      row.classList.toggle("nearest", other === line);
      value.textContent = other.y[point];
      row.append(other.name, value);
      list.append(row);
    }
    return list;
  }

  function show(line, point, px = line.at[point][0]) {
    at = [line, point];
    const [, py] = line.at[point];
    const heading = document.createElement("b");
    const together = data.curves && lines().length > 1;
    const text = `${line.y[point]} ${data.between} ${line.x[point]}`;
    heading.textContent = together ? `${data.between} ${line.x[point]}` : line.name;
    readout.classList.toggle("all", together);
    readout.replaceChildren(heading, together ? others(line, px) : text);
    readout.hidden = false;
    cursor.setAttribute("cx", px);
    cursor.setAttribute("cy", py);
    if (together) {
      crosshair.setAttribute("d", `M${px} 34V${box.height - 44}`);
      svg.append(crosshair);
    }
    svg.append(cursor);
    const scale = svg.clientWidth / box.width;
    const left = px * scale + 12;
    const room = svg.clientWidth - readout.offsetWidth;
    readout.style.left = `${left > room ? Math.max(0, px * scale - readout.offsetWidth - 12) : left}px`;
    readout.style.top = `${Math.max(0, py * scale - readout.offsetHeight - 8)}px`;
    return `${line.name}: ${text}`;
  }

  function hide() {
    readout.hidden = true;
    cursor.remove();
    crosshair.remove();
  }

  function nearest(px, py) {
    let best = null, least = Infinity;
    for (const line of lines()) {
      const points = data.curves ? [stepAt(line, px)] : line.at.keys();
      for (const j of points) {
        const [x, y] = line.at[j];
        const distance = (data.curves ? 0 : (x - px) ** 2) + (y - py) ** 2;
        if (distance < least) [best, least] = [[line, j], distance];
      }
    }
    return best;
  }

  const start = () => {
    const there = lines();
    return at && there.includes(at[0]) ? at : there.length ? [there[0], 0] : null;
  };
  plot.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const scale = box.width / frame.width;
    const found = nearest((event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale);
    if (found) show(...found); else hide();
  });
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) hide(); });
  plot.addEventListener("focus", () => { if (start()) spoken.textContent = show(...start()); });
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    if (!start()) return;
    let [line, point] = start();
    const last = line.at.length - 1;
    const other = (step) => {
      const [px] = line.at[point], there = lines();
      line = there[(there.indexOf(line) + step + there.length) % there.length];
      // The point of the other line that is nearest from left to right.
      const places = line.at;
      point = places.reduce((best, [x], j) => (Math.abs(x - px) < Math.abs(places[best][0] - px) ? j : best), 0);
    };
    switch (event.key) {
      case "ArrowRight": if (last) point = Math.min(last, point + 1); else other(1); break;
      case "ArrowLeft": if (last) point = Math.max(0, point - 1); else other(-1); break;
      case "ArrowUp": other(-1); break;
      case "ArrowDown": other(1); break;
      case "Home": point = 0; break;
      case "End": point = last; break;
      case "Escape": hide(); return;
      default: return;
    }
    event.preventDefault();
    spoken.textContent = show(line, point);
  });
  plot.tabIndex = 0;
  plot.setAttribute("role", "application");
  plot.setAttribute("aria-roledescription", "chart");
  plot.setAttribute("aria-label", `${plot.getAttribute("aria-label")} Arrow keys read out its values.`);
}

document.querySelectorAll(".plot.reads").forEach((plot, i) => readable(plot, readings[i]));

// --- the choice of models and threats: style alone hides what is not chosen; here it is said, and all or none chosen ---

for (const group of document.querySelectorAll(".choose fieldset")) {
  const boxes = [...group.querySelectorAll("input")];
  const kind = group.querySelector("legend").textContent.toLowerCase();
  const say = () => {
    const count = boxes.filter((box) => box.checked).length;
    spoken.textContent = `${count} of ${boxes.length} ${kind} shown.`;
    document.dispatchEvent(new Event("chosen"));
  };
  group.addEventListener("change", say);
  if (boxes.length < 3) continue;
  for (const [name, checked] of [["All", true], ["None", false]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-label", `${name} of the ${kind}`);
    button.addEventListener("click", () => {
      boxes.forEach((box) => { box.checked = checked; });
      say();
    });
    group.append(button);
  }
}

// --- contents: where the reader is; and everything unfolds on paper ---

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(entry.target.id).setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -80% 0px" });
links.forEach((_, id) => watcher.observe(document.getElementById(id)));

let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open], .columns)")];
  folded.forEach((part) => { part.open = true; });
});
addEventListener("afterprint", () => folded.forEach((part) => { part.open = false; }));
