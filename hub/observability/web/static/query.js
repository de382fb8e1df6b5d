// The query console: runs, explains, exports or follows the statement, draws the answer as text nodes only, remembers
// statements in this browser.
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
  const PUSH = /^\s*subscribe\b|\bemit\s+changes\b/i;
  const MOST_FOLLOWED = 200;
  let running = null;
  let tables = { views: [], functions: [], topics: [] };
  const columns = new Map(); // of topics that the statement names
  const editor = window.hubEditor(sql, words);

  // ---- completion

  function words() {
    return [
      ...tables.views.flatMap((each) => [...each.columns, ...each.hidden]).map(({ name, type }) => ({ name, kind: "column", detail: type })),
      ...[...columns.values()].flat().map(({ name, type }) => ({ name, kind: "column", detail: type })),
      ...tables.views.map((each) => ({ name: each.view, kind: "view" })),
      ...tables.topics.map((name) => ({ name: `"${name}"`, kind: "topic" })),
      ...tables.functions.map((name) => ({ name, kind: "function" })),
    ].filter((each, n, all) => all.findIndex((other) => other.name === each.name) === n);
  }

  async function learn() {
    for (const [, topic] of sql.value.matchAll(/"([^"]+)"/g)) {
      if (columns.has(topic) || !tables.topics.includes(topic)) continue;
      columns.set(topic, []);
      const found = await got(`/query/topics/${encodeURIComponent(topic)}`);
      if (found) columns.set(topic, [...found.columns, ...found.hidden]);
      editor.refresh();
    }
  }

  async function got(path) {
    try {
      const answer = await fetch(path, { headers: { Accept: "application/json" } });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }

  Promise.all([got("/query/tables"), got("/api/workbench")]).then(([known, listed]) => {
    tables = { views: known?.views || [], functions: known?.functions || [], topics: listed?.topics || [] };
    editor.refresh();
    learn();
  });

  // ---- parameters: a field for each :name of the statement

  function parameters() {
    const text = sql.value.replace(/'(?:[^']|'')*'|"[^"]*"|--[^\n]*/g, "");
    return [...new Set([...text.matchAll(/(?<![:\w]):([A-Za-z_]\w*)/g)].map(([, name]) => name))];
  }

  function askForParameters() {
    const place = document.getElementById("parameters");
    const known = new Map([...place.querySelectorAll("input")].map((each) => [each.name, each]));
    const fields = parameters().map((name) => {
      if (known.has(name)) return known.get(name).parentElement;
      const label = made("label", `:${name} `);
      const field = Object.assign(document.createElement("input"), { name, autocomplete: "off" });
      field.value = new URLSearchParams(location.search).get(`p.${name}`) || "";
      label.append(field);
      return label;
    });
    place.replaceChildren(...fields);
  }

  const given = () => Object.fromEntries([...document.querySelectorAll("#parameters input")].map((each) => [each.name, each.value]));

  function payload(more) {
    const limit = Number(document.getElementById("limit").value) || 200;
    return JSON.stringify({ sql: sql.value.trim(), parameters: given(), limit, ...more });
  }

  const asked = (more, signal) => fetch("/query", { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: payload(more), signal });

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

  async function run(explained = false) {
    const text = sql.value.trim();
    if (!text) return say("Write a statement first.");
    if (running) running.abort();
    const mine = (running = new AbortController());
    const began = performance.now();
    const named = Object.entries(given()).map(([name, value]) => [`p.${name}`, value]);
    history.replaceState(null, "", `/query?${new URLSearchParams([["sql", text], ...named])}`);
    editor.mark(0);
    if (PUSH.test(text) && !explained) return follow(text, mine);
    say("Asking…");
    let answer, body;
    try {
      answer = await asked(explained ? { sql: `EXPLAIN ${text}`, parameters: {} } : {}, mine.signal);
      body = await answer.json();
    } catch (error) {
      if (mine.signal.aborted) return;
      return say(`No answer from the hub's server: ${error.message}`);
    }
    if (mine !== running) return;
    remember(text);
    if (answer.ok) draw(body, performance.now() - began);
    else refuse(body, explained ? `EXPLAIN ${text}` : text);
  }

  // ---- a push query: rows as they come, the newest first

  async function follow(text, mine) {
    const stop = document.getElementById("stop");
    stop.hidden = false;
    say("Waiting for rows…");
    let rows = 0;
    try {
      const query = new URLSearchParams({ ...given(), sql: text, format: "ndjson" });
      const answer = await fetch(`/query/changes?${query}`, { signal: mine.signal });
      if (!answer.ok) return refuse(await answer.json(), text);
      for await (const event of linesOf(answer.body)) {
        if (event.event === "columns") table.replaceChildren(headOf(event.data.columns), made("tbody", ""));
        else if (event.data?.row || event.event === "delete") rows = arrived(event, rows);
        else if (event.event === "closing") return say(`The server ended the stream: ${event.data.reason}`);
        if (event.event === "complete") said.textContent = `Complete: ${rows} row${rows === 1 ? "" : "s"}`;
      }
    } catch (error) {
      if (!mine.signal.aborted) said.textContent = `The stream has ended: ${error.message}`;
      else said.textContent = `Stopped after ${rows} row${rows === 1 ? "" : "s"}`;
    } finally {
      if (mine === running) stop.hidden = true;
      remember(text);
    }
  }

  async function* linesOf(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.trim()) yield JSON.parse(line);
    }
  }

  function arrived(event, rows) {
    const names = [...table.querySelectorAll("thead th")];
    const line = made("tr", "");
    for (const { textContent: name, title: type } of names) line.append(cellOf(event.data.row?.[name], type));
    if (event.event === "delete") line.replaceChildren(Object.assign(made("td", `deleted: ${event.data.key}`), { colSpan: names.length || 1, className: "quiet" }));
    const lines = table.querySelector("tbody");
    lines.prepend(line);
    if (lines.children.length > MOST_FOLLOWED) lines.lastElementChild.remove();
    said.textContent = `${rows + 1} row${rows ? "s" : ""} so far, the newest first${rows + 1 > MOST_FOLLOWED ? `; the last ${MOST_FOLLOWED} are shown` : ""}`;
    return rows + 1;
  }

  async function save(format) {
    const answer = await asked({ format });
    if (!answer.ok) return refuse(await answer.json(), sql.value.trim());
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: `query.${format}` });
    link.click();
    URL.revokeObjectURL(link.href);
    if (answer.headers.get("Hub-More") === "true") said.textContent = "There are more rows than the file has: raise Rows.";
  }

  function draw(body, took) {
    const scanned = (body.scanned || []).reduce((sum, each) => sum + each.events, 0);
    const parts = [`${body.rows.length} row${body.rows.length === 1 ? "" : "s"}${body.more ? ", there are more" : ""}`];
    if (body.scanned && body.scanned.length) {
      const left = body.scanned.some((each) => each.earlier_left_out);
      parts.push(`out of ${scanned} events${left ? ", earlier ones are left out" : ""}`);
      const gaps = body.scanned.flatMap((each) => (each.missing || []).map(([first, end]) => `${each.partition}:${first}-${end}`));
      if (gaps.length) parts.push(`missing offsets ${gaps.slice(0, 8).join(", ")}`);
      if (body.scanned.some((each) => each.missing === null)) parts.push("what is missing is unknown");
    }
    parts.push(`${Math.round(took)} ms`);
    say(parts.join(" · "));
    if (!body.columns.length) return;
    const rows = made("tbody", "");
    for (const each of body.rows) {
      const line = made("tr", "");
      for (const { name, type } of body.columns) line.append(cellOf(each[name], type));
      rows.append(line);
    }
    table.replaceChildren(headOf(body.columns), rows);
  }

  function headOf(columns) {
    const head = made("thead", "");
    const row = made("tr", "");
    for (const { name, type } of columns) {
      const cell = made("th", name);
      cell.scope = "col";
      cell.title = type;
      if (isNumber(type)) cell.className = "n";
      row.append(cell);
    }
    head.append(row);
    return head;
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
    editor.mark(line === null ? 0 : Number(body.line));
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
    editor.set(chosen.dataset.sql);
    sql.focus();
  });
  sql.addEventListener("input", () => {
    askForParameters();
    learn();
  });
  document.getElementById("explain").addEventListener("click", () => run(true));
  document.getElementById("stop").addEventListener("click", () => running && running.abort());
  for (const format of ["csv", "json"]) document.getElementById(`save-${format}`).addEventListener("click", () => save(format));
  document.getElementById("forget").addEventListener("click", () => {
    localStorage.removeItem(STORE);
    list();
  });
  list();
  askForParameters();
  if (sql.value.trim()) run();
})();
