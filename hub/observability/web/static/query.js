// The query console: runs the statement, draws the answer as text nodes only, remembers statements in this browser.
"use strict";
(() => {
  const STORE = "hub-queries";
  const MOST_REMEMBERED = 20;
  const LONGEST_CELL = 400;
  const form = document.getElementById("query");
  const sql = document.getElementById("sql");
  const said = document.getElementById("answer-said");
  const wrong = document.getElementById("answer-wrong");
  const table = document.getElementById("answer-rows");
  let running = null;

  const made = (tag, text) => {
    const element = document.createElement(tag);
    element.textContent = text;
    return element;
  };

  function say(text) {
    said.textContent = text;
    wrong.hidden = true;
    table.replaceChildren();
  }

  async function run() {
    const text = sql.value.trim();
    if (!text) return say("Write a statement first.");
    if (running) running.abort();
    const mine = (running = new AbortController());
    const began = performance.now();
    history.replaceState(null, "", `/query?${new URLSearchParams({ sql: text })}`);
    say("Asking…");
    let answer, body;
    try {
      answer = await fetch("/query", {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        body: JSON.stringify({ sql: text, limit: Number(document.getElementById("limit").value) || 200 }),
        signal: mine.signal,
      });
      body = await answer.json();
    } catch (error) {
      if (mine.signal.aborted) return;
      return say(`No answer from the hub's server: ${error.message}`);
    }
    if (mine !== running) return;
    remember(text);
    if (answer.ok) draw(body, performance.now() - began);
    else refuse(body, text);
  }

  function draw(body, took) {
    const scanned = (body.scanned || []).reduce((sum, each) => sum + each.events, 0);
    const parts = [`${body.rows.length} row${body.rows.length === 1 ? "" : "s"}${body.more ? ", there are more" : ""}`];
    if (body.scanned && body.scanned.length) {
      const left = body.scanned.some((each) => each.earlier_left_out);
      parts.push(`out of ${scanned} events${left ? ", earlier ones are left out" : ""}`);
    }
    parts.push(`${Math.round(took)} ms`);
    say(parts.join(" · "));
    if (!body.columns.length) return;
    const head = made("thead", "");
    const row = made("tr", "");
    for (const { name, type } of body.columns) {
      const cell = made("th", name);
      cell.scope = "col";
      cell.title = type;
      if (isNumber(type)) cell.className = "n";
      row.append(cell);
    }
    head.append(row);
    const rows = made("tbody", "");
    for (const each of body.rows) {
      const line = made("tr", "");
      for (const { name, type } of body.columns) line.append(cellOf(each[name], type));
      rows.append(line);
    }
    table.replaceChildren(head, rows);
  }

  const isNumber = (type) => ["int", "long", "float", "double", "decimal"].includes(type);

  function cellOf(value, type) {
    const text = value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
    const cell = made("td", text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}… (${text.length} characters)` : text);
    if (isNumber(type)) cell.className = "n";
    if (text === "–") cell.classList.add("quiet");
    return cell;
  }

  function refuse(body, text) {
    say([body.message || "The statement was refused.", body.hint].filter(Boolean).join(" "));
    const line = body.line ? text.split("\n")[body.line - 1] : null;
    if (line !== null && line !== undefined && body.column) {
      wrong.textContent = `${line}\n${" ".repeat(body.column - 1)}^`;
      wrong.hidden = false;
    }
  }

  // ---- earlier statements

  function remembered() {
    try {
      const found = JSON.parse(localStorage.getItem(STORE) || "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
    } catch {
      return [];
    }
  }

  function remember(text) {
    localStorage.setItem(STORE, JSON.stringify([text, ...remembered().filter((each) => each !== text)].slice(0, MOST_REMEMBERED)));
    list();
  }

  function list() {
    const items = remembered().map((text) => {
      const item = made("li", "");
      const button = made("button", text.length > 120 ? `${text.slice(0, 119)}…` : text);
      button.type = "button";
      button.className = "link mono";
      button.dataset.sql = text;
      item.append(button);
      return item;
    });
    if (!items.length) {
      const none = made("li", "Nothing yet.");
      none.className = "quiet";
      items.push(none);
    }
    document.getElementById("history").replaceChildren(...items);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  sql.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  document.addEventListener("click", (event) => {
    const chosen = event.target.closest("[data-sql]");
    if (!chosen) return;
    sql.value = chosen.dataset.sql;
    sql.focus();
  });
  document.getElementById("forget").addEventListener("click", () => {
    localStorage.removeItem(STORE);
    list();
  });
  list();
  if (sql.value.trim()) run();
})();
