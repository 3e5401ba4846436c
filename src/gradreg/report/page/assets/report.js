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

function readable(plot, data) {
  const svg = plot.querySelector("svg");
  const box = svg.viewBox.baseVal;
  const lines = data.series.filter((line) => line.at.length);
  if (!lines.length) return;
  const cursor = document.createElementNS(SVG, "circle");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("r", "4.5");
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  plot.append(readout);
  let at = null; // [line, point]

  function show(line, point) {
    at = [line, point];
    const { name, at: places, x, y } = lines[line];
    const [px, py] = places[point];
    const heading = document.createElement("b");
    heading.textContent = name;
    const text = `${y[point]} ${data.between} ${x[point]}`;
    readout.replaceChildren(heading, text);
    readout.hidden = false;
    cursor.setAttribute("cx", px);
    cursor.setAttribute("cy", py);
    svg.append(cursor);
    const scale = svg.clientWidth / box.width;
    const left = px * scale + 12;
    const room = svg.clientWidth - readout.offsetWidth;
    readout.style.left = `${left > room ? Math.max(0, px * scale - readout.offsetWidth - 12) : left}px`;
    readout.style.top = `${Math.max(0, py * scale - readout.offsetHeight - 8)}px`;
    return `${name}: ${text}`;
  }

  function hide() {
    readout.hidden = true;
    cursor.remove();
  }

  function nearest(px, py) {
    let best = [0, 0], least = Infinity;
    lines.forEach((line, i) => line.at.forEach(([x, y], j) => {
      const distance = (x - px) ** 2 + (y - py) ** 2;
      if (distance < least) [best, least] = [[i, j], distance];
    }));
    return best;
  }

  plot.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const scale = box.width / frame.width;
    show(...nearest((event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale));
  });
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) hide(); });
  plot.addEventListener("focus", () => { spoken.textContent = show(...(at || [0, 0])); });
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    let [line, point] = at || [0, 0];
    const last = lines[line].at.length - 1;
    const other = (to) => {
      const [px] = lines[line].at[point];
      line = (to + lines.length) % lines.length;
      // The point of the other line that is nearest from left to right.
      const places = lines[line].at;
      point = places.reduce((best, [x], j) => (Math.abs(x - px) < Math.abs(places[best][0] - px) ? j : best), 0);
    };
    switch (event.key) {
      case "ArrowRight": if (last) point = Math.min(last, point + 1); else other(line + 1); break;
      case "ArrowLeft": if (last) point = Math.max(0, point - 1); else other(line - 1); break;
      case "ArrowUp": other(line - 1); break;
      case "ArrowDown": other(line + 1); break;
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
