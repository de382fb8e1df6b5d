// The view workbench: topics with their fields and recent events, a statement, its plan, the rows it makes, its file.
// Everything that comes from the hub is drawn as text nodes only.
"use strict";
(() => {
  const QUIET_MS = 500;
  const LONGEST_CELL = 200;
  const of = (id) => document.getElementById(id);
  const area = of("statement");
  const topics = new Map(); // chosen topics, with their fields
  let functions = [];
  let listed = JSON.parse(of("listed").dataset.names);
  let planned = null;
  let computed = null; // the last preview, and its statement
  let asking = null;
  let computing = false;
  let timer = 0;

  const editor = window.hubEditor(area, words);

  function words() {
    const fields = [...topics.values()].flatMap((each) => each.fields);
    return [
      ...fields.map(({ name, type }) => ({ name, kind: "field", detail: type })),
      ...listed.topics.map((name) => ({ name: `"${name}"`, kind: "topic" })),
      ...listed.views.map((name) => ({ name, kind: "view" })),
      ...functions.map((name) => ({ name, kind: "function" })),
    ];
  }

  const made = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });

  async function ask(path, body, signal) {
    const options = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal } : { signal };
    const answer = await fetch(path, options);
    const found = await answer.json();
    if (!answer.ok) throw Object.assign(new Error(found.message || "The hub refused this."), { told: found });
    return found;
  }

  // ---- topics

  async function choose(name) {
    if (topics.has(name)) {
      topics.delete(name);
      return drawChosen();
    }
    of("topics-said").textContent = `Reading ${name}…`;
    try {
      const found = await ask(`/api/workbench/topics/${encodeURIComponent(name)}?events=${events()}`);
      topics.set(name, found);
      of("topics-said").textContent = "";
      if (!area.value.trim()) editor.set(found.statement);
    } catch (error) {
      of("topics-said").textContent = told(error);
    }
    drawChosen();
  }

  function drawChosen() {
    for (const button of document.querySelectorAll("[data-topic]")) button.setAttribute("aria-pressed", String(topics.has(button.dataset.topic)));
    of("chosen").replaceChildren(...[...topics.values()].map(drawTopic));
    const none = !topics.size;
    of("chosen-none").hidden = !none;
  }

  function drawTopic(found) {
    const sheet = made("section");
    sheet.setAttribute("aria-label", `Fields of ${found.topic}`);
    const head = made("h3", found.topic, "mono");
    sheet.append(head);
    if (!found.fields.length) sheet.append(made("p", "No schema is registered. Register one with hub schema infer.", "quiet"));
    const list = made("ul", "", "field-list");
    for (const { name, type } of found.fields) {
      const item = made("li");
      const button = made("button", name, "link mono");
      button.type = "button";
      button.title = `Insert ${name}`;
      button.addEventListener("click", () => editor.write(name));
      item.append(button, made("span", type, "quiet mono"));
      list.append(item);
    }
    const insert = made("button", "Insert the topic's name", "link");
    insert.type = "button";
    insert.addEventListener("click", () => editor.write(`"${found.topic}"`));
    sheet.append(list, insert, drawEvents(found));
    return sheet;
  }

  function drawEvents(found) {
    const part = made("details");
    const number = found.events.length;
    part.append(made("summary", `${number} recent event${number === 1 ? "" : "s"}${found.unreadable ? `, ${found.unreadable} that cannot be read` : ""}`));
    const text = found.events.map((each) => `${new Date(each.at_ms).toISOString()}  ${each.key ?? "–"}  ${JSON.stringify(each.value)}`).reverse().join("\n");
    const lines = made("pre", text || "None.", "code sampled");
    lines.tabIndex = 0;
    part.append(lines);
    return part;
  }

  async function search() {
    const query = new URLSearchParams({ q: of("topic-search").value });
    try {
      listed = await ask(`/api/workbench?${query}`);
    } catch (error) {
      of("topics-said").textContent = told(error);
      return;
    }
    const items = listed.topics.map((name) => {
      const item = made("li");
      const button = made("button", name, "choice mono");
      button.type = "button";
      button.dataset.topic = name;
      item.append(button);
      return item;
    });
    of("topic-list").replaceChildren(...items);
    of("topics-said").textContent = listed.more ? `${listed.more} more: type a part of the name` : items.length ? "" : "No topic has these words.";
    drawChosen();
  }

  // ---- plan and preview

  const events = () => Math.min(200, Math.max(1, Number(of("events").value) || 20));
  const told = (error) => [error.told?.message || error.message, error.told?.hint].filter(Boolean).join(" ");

  function changed() {
    clearTimeout(timer);
    planned = null;
    of("save").disabled = true;
    timer = setTimeout(plan, QUIET_MS);
  }

  async function plan() {
    clearTimeout(timer);
    const sql = area.value.trim() ? area.value : "";
    const address = sql ? `/workbench?${new URLSearchParams({ sql })}` : "/workbench";
    if (address.length < 4000) history.replaceState(null, "", address);
    if (asking) asking.abort();
    of("saving").hidden = true;
    if (!sql) return refuse(null);
    const mine = (asking = new AbortController());
    try {
      const found = await ask("/api/workbench/plan", { sql }, mine.signal);
      if (mine !== asking) return;
      planned = { ...found, sql };
      refuse(null);
      drawPlan(planned);
      if (of("auto").checked) preview();
    } catch (error) {
      if (!mine.signal.aborted) refuse(error);
    }
  }

  async function preview() {
    if (computing || !planned || planned.why_no_preview || computed?.sql === planned.sql) return;
    computing = true;
    const sql = planned.sql;
    of("rows-said").textContent = computed ? "Computing…" : "Computing… The first preview starts Spark, which takes some seconds.";
    of("rows").setAttribute("aria-busy", "true");
    try {
      computed = { ...(await ask("/api/workbench/preview", { sql, events: events() })), sql };
      if (sql === area.value) drawRows(computed);
    } catch (error) {
      computed = null;
      of("rows-table").replaceChildren();
      of("rows-said").textContent = told(error);
      if (sql === area.value && error.told?.line) refuse(error);
    }
    of("rows").removeAttribute("aria-busy");
    computing = false;
    if (sql !== area.value && planned && of("auto").checked) preview();
  }

  function refuse(error) {
    const place = of("wrong");
    const line = Number(error?.told?.line) || 0;
    editor.mark(line);
    place.hidden = !error;
    if (!error) return;
    const column = Number(error.told?.column) || 0;
    const said = (error.told?.message || error.message).split("\n")[0].replace(/^view "[^"]*": (SQL line \d+, column \d+: )?/, "");
    const text = line ? `\nline ${line}: ${area.value.split("\n")[line - 1] ?? ""}` : "";
    const caret = line && column ? `\n${" ".repeat(`line ${line}: `.length + column - 1)}^` : "";
    place.replaceChildren(made("strong", said), `${text}${caret}`);
    if (error.told?.hint) place.append(`\n${error.told.hint}`);
    of("saving").hidden = true;
    of("rows-said").textContent = "No rows: the statement has an error.";
    of("rows-table").replaceChildren();
    computed = null;
  }

  function drawPlan(found) {
    const pairs = found.plan.map(({ item, value }) => {
      const row = made("div");
      row.append(made("dt", item), made("dd", value));
      return row;
    });
    of("plan").replaceChildren(...pairs);
    of("diff").textContent = found.diff.length ? found.diff.join("\n") : found.exists ? found.text : "The file stays as it is.";
    of("diff-title").textContent = found.exists ? `Change of ${found.file}` : `New file ${found.file}`;
    of("command").textContent = `hub sql -c '${found.sql.trim().replaceAll("'", "'\\''")}'`;
    const replaces = /^\s*create\s+or\s+replace\b/i.test(found.sql);
    const why = found.why_not_saved || (found.exists && !replaces ? `The view ${found.view} exists: write CREATE OR REPLACE, or another name.` : "");
    of("save").disabled = Boolean(why);
    of("save-said").textContent = why ? `${why}${found.why_not_saved ? " Copy the file, and commit it in git." : ""}` : "";
    of("saving").hidden = false;
    if (found.why_no_preview) of("rows-said").textContent = `No preview here: ${found.why_no_preview}. hub view test computes rows where Spark is.`;
  }

  function cell(value) {
    const text = value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return made("td", text.length > LONGEST_CELL ? `${text.slice(0, LONGEST_CELL)}…` : text, typeof value === "number" ? "n" : text === "–" ? "quiet" : "");
  }

  function drawRows(found) {
    const from = found.sources.map((each) => `${each.events} of ${each.topic}${each.left_out ? ` (${each.left_out} left out: they do not fit)` : ""}`).join(", ");
    const number = found.rows.length + found.more;
    const dead = found.dead.length ? ` · ${found.dead.length} event${found.dead.length === 1 ? "" : "s"} refused: ${found.dead[0].reason}` : "";
    of("rows-said").textContent = `${number} row${number === 1 ? "" : "s"} of the newest events: ${from}. Computed by Spark, as hub view test does${found.more ? ` · the first ${found.rows.length} are shown` : ""}${found.late ? ` · ${found.late} late` : ""}${dead}`;
    const head = made("tr");
    const isNumber = (name) => found.rows.some(({ row }) => typeof row[name] === "number");
    for (const name of ["key", ...found.columns]) head.append(Object.assign(made("th", name, isNumber(name) ? "n" : ""), { scope: "col" }));
    const body = found.rows.map(({ key, row }) => {
      const line = made("tr");
      line.append(Object.assign(made("th", key, "mono"), { scope: "row" }), ...found.columns.map((name) => cell(row[name])));
      return line;
    });
    const top = made("thead");
    const rest = made("tbody");
    top.append(head);
    rest.append(...body);
    of("rows-table").replaceChildren(top, rest);
    of("test").textContent = found.test;
    of("test-title").textContent = `Golden test ${found.test_file}`;
    of("test-part").hidden = false;
  }

  async function save() {
    if (!planned) return;
    of("save").disabled = true;
    of("save-said").textContent = "Writing…";
    const test = of("with-test").checked && computed?.sql === planned.sql ? computed.test : null;
    try {
      const found = await ask("/api/workbench/save", { sql: planned.sql, test });
      const link = Object.assign(made("a", `the view ${found.view}`), { href: `/views/${encodeURIComponent(found.view)}` });
      of("save-said").replaceChildren(`Written: ${found.written.join(" and ")}. It starts by itself: `, link, ".");
    } catch (error) {
      of("save-said").textContent = told(error);
      of("save").disabled = false;
    }
  }

  async function copy(button) {
    const text = button.dataset.copy === "file" ? planned?.text || "" : of(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text and copy it";
    }
  }

  document.addEventListener("click", (event) => {
    const topic = event.target.closest("[data-topic]");
    if (topic) choose(topic.dataset.topic);
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  of("bench").addEventListener("submit", async (event) => {
    event.preventDefault();
    computed = null;
    await plan();
    preview();
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) of("bench").requestSubmit();
  });
  area.addEventListener("input", changed);
  of("save").addEventListener("click", save);
  let typing = 0;
  of("topic-search").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, 250);
  });
  ask("/api/workbench/functions").then((found) => (functions = found.functions), () => {});
  for (const name of JSON.parse(of("listed").dataset.chosen)) choose(name);
  if (area.value.trim()) plan();
})();
