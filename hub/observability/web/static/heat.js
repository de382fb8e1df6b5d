// The heat map as one stop of the tab order: arrow keys, Home and End go from cell to cell. Without it each cell is a stop.
"use strict";
(() => {
  const map = () => document.querySelector("[data-heat]");
  const rows = () => [...map().querySelectorAll("tr")].map((row) => [...row.querySelectorAll("a.swatch")]).filter((cells) => cells.length);
  let at = null; // [topic, column]: rows may change places under the reader

  const topicOf = (cell) => cell.closest("tr").dataset.key;
  const columnOf = (cell) => [...cell.closest("tr").querySelectorAll("a.swatch")].indexOf(cell);

  // The cell that Tab reaches: where the reader was, the chosen one, or the newest of the first row.
  function settle() {
    if (!map()) return;
    const grid = rows();
    if (!grid.length) return;
    const kept = at && grid.find((cells) => topicOf(cells[0]) === at[0]);
    const stop = (kept && kept[at[1]]) || map().querySelector("a.swatch[aria-current]") || grid[0].at(-1);
    for (const cells of grid) for (const cell of cells) cell.tabIndex = cell === stop ? 0 : -1;
  }

  function go(cell) {
    at = [topicOf(cell), columnOf(cell)];
    settle();
    cell.focus();
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const cell = event.target instanceof Element && event.target.closest("[data-heat] a.swatch");
    if (!cell) return;
    const grid = rows();
    const row = grid.findIndex((cells) => cells.includes(cell));
    const column = grid[row].indexOf(cell);
    const to = {
      ArrowLeft: () => grid[row][column - 1],
      ArrowRight: () => grid[row][column + 1],
      ArrowUp: () => (grid[row - 1] || [])[column],
      ArrowDown: () => (grid[row + 1] || [])[column],
      Home: () => grid[row][0],
      End: () => grid[row].at(-1),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const next = to();
    if (next) go(next);
  });

  document.addEventListener("focusin", (event) => {
    const cell = event.target.closest("[data-heat] a.swatch");
    if (cell) at = [topicOf(cell), columnOf(cell)];
  });
  document.body.addEventListener("htmx:afterSwap", settle);
  settle();

  // On a narrow screen the newest is what is looked for, or what was chosen.
  const scroller = document.getElementById("map");
  if (scroller) {
    const chosen = scroller.querySelector("[aria-current]");
    const middle = scroller.getBoundingClientRect().left + scroller.clientWidth / 2;
    scroller.scrollLeft = chosen ? chosen.getBoundingClientRect().left - middle : scroller.scrollWidth;
  }
})();
