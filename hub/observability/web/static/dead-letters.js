// Dead-letter records: counted by topic and cause, shown, repaired in place, replayed or dismissed in bulk. Each action
// shows its plan and the equal command first. Everything that comes from the hub is drawn as text nodes only.
"use strict";
(() => {
  const MOST_LISTED = 500;
  const of = (id) => document.getElementById(id);
  const topic = of("letters")?.dataset.topic;
  const made = (tag, text = "", name = "") => Object.assign(document.createElement(tag), { textContent: text, className: name });
  let rows = [];
  let reading = 0; // number of the newest list, so that an older answer is not drawn over it
  let planned = null; // the action that waits for its confirmation

  async function ask(path, body) {
    const options = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
    const answer = await fetch(path, options);
    const found = await answer.json();
    if (!answer.ok) throw new Error([found.message, found.hint].filter(Boolean).join(" "));
    return found;
  }

  const number = (many, what) => `${many} ${what}${many === 1 ? "" : "s"}`;

  function age(ms) {
    if (ms === null || ms === undefined) return "–";
    const s = ms / 1000;
    return s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min` : s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
  }

  // ---- topics

  async function count() {
    try {
      const found = await ask("/dlq");
      const left = found.topics.filter((each) => each.open + each.repaired + each.replayed + each.dismissed);
      of("counts-said").textContent = left.length ? (found.complete ? "" : "Not all records could be counted.") : "No dead-letter record is there: nothing was refused.";
      of("counts").hidden = !left.length;
      of("counts").querySelector("tbody").replaceChildren(...left.map(countRow));
    } catch (error) {
      of("counts-said").textContent = `Not known now: ${error.message}`;
    }
  }

  function countRow(each) {
    const row = made("tr");
    const head = Object.assign(made("th"), { scope: "row" });
    const link = Object.assign(made("a", each.topic, "mono"), { href: `/dead-letters?${new URLSearchParams({ topic: each.topic })}` });
    if (each.topic === topic) link.setAttribute("aria-current", "true");
    head.append(link);
    const causes = Object.entries(each.by_reason).map(([name, many]) => `${name} ${many}`).join(", ");
    row.append(head, made("td", String(each.open), "n"), made("td", String(each.repaired), "n"), made("td", causes || "–", "wrap-text"), made("td", age(each.oldest_age_ms), "n wide"));
    return row;
  }

  // ---- records of one topic, by cause

  const state = () => of("state").value;
  const shown = () => {
    const words = of("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    return rows.filter((each) => words.every((word) => JSON.stringify(each).toLowerCase().includes(word)));
  };
  const chosen = () => [...document.querySelectorAll("#groups input[data-record]:checked")].map((each) => rows[Number(each.dataset.record)]);

  async function list() {
    const query = new URLSearchParams({ limit: MOST_LISTED, ...(state() ? { state: state() } : {}) });
    of("letters-said").textContent = "Reading…";
    const mine = ++reading;
    try {
      const found = await ask(`/dlq/${encodeURIComponent(topic)}?${query}`);
      if (mine !== reading) return;
      rows = found.letters;
      const more = found.more ? `; ${found.more} more: act on these first` : "";
      of("letters-said").textContent = rows.length ? `${number(rows.length, "record")}${more}${found.complete ? "" : "; not all could be read"}` : "No record is in this state.";
    } catch (error) {
      rows = [];
      of("letters-said").textContent = error.message;
    }
    draw();
  }

  function draw() {
    const groups = Map.groupBy(shown(), (each) => each.reason || "unknown");
    of("groups").replaceChildren(...[...groups].sort((a, b) => b[1].length - a[1].length).map(group));
    count_chosen();
  }

  function group([reason, records]) {
    const part = Object.assign(made("details", "", "cause"), { open: true });
    const head = made("summary", `${reason} · ${records.length}`);
    const all = made("label", "", "inline");
    const box = Object.assign(made("input"), { type: "checkbox" });
    box.addEventListener("change", () => {
      for (const each of part.querySelectorAll("input[data-record]")) each.checked = box.checked;
      count_chosen();
    });
    all.append(box, ` all of ${reason}`);
    const lines = made("ul", "", "lines");
    lines.append(...records.map(line));
    part.append(head, all, lines);
    return part;
  }

  function line(each) {
    const item = made("li");
    const label = made("label", "", "inline");
    const box = Object.assign(made("input"), { type: "checkbox" });
    box.dataset.record = String(rows.indexOf(each));
    box.addEventListener("change", count_chosen);
    label.append(box, made("span", `${each.partition}@${each.offset}`, "mono"), made("span", each.key === null ? "no key" : each.key, "mono quiet cut-off"));
    const open = Object.assign(made("button", "Show", "link"), { type: "button" });
    open.setAttribute("aria-label", `Show ${each.partition}@${each.offset}`);
    open.addEventListener("click", () => show(each));
    const head = made("div", "", "letter");
    head.append(label, made("span", each.state, "pill"), open);
    item.append(head, made("span", `${each.by ? `${each.by}: ` : ""}${each.detail || each.reason}`, "doc"));
    return item;
  }

  function count_chosen() {
    const many = chosen().length;
    for (const id of ["replay", "dismiss"]) of(id).disabled = !many;
    of("chosen-said").textContent = many ? `${number(many, "record")} chosen` : "Choose records, or all of a cause.";
  }

  // ---- one record

  async function show(each) {
    const place = of("letter");
    place.hidden = false;
    of("letter-title").textContent = `Record ${each.partition}@${each.offset}`;
    place.dataset.place = `${each.partition}/${each.offset}`;
    of("letter-body").textContent = "Reading…";
    try {
      const found = await ask(`/dlq/${encodeURIComponent(topic)}/${place.dataset.place}`);
      of("letter-body").textContent = [found.detail, found.wrong, found.from && `from ${found.from}`, found.done && `${found.done.state} by ${found.done.by}`].filter(Boolean).join("\n");
      of("letter-hex").textContent = found.hex || "no value";
      of("event").value = found.json === null || found.json === undefined ? "" : JSON.stringify(found.json, null, 2);
      of("repair-said").textContent = found.json_is_partial ? "Only a part of the event could be read: complete it." : "";
    } catch (error) {
      of("letter-body").textContent = error.message;
    }
    of("letter-title").focus();
  }

  async function repair(event) {
    event.preventDefault();
    const real = event.submitter.value === "real";
    const path = `/dlq/${encodeURIComponent(topic)}/${of("letter").dataset.place}/repair`;
    try {
      const value = JSON.parse(of("event").value);
      const found = await ask(path, { value, dry_run: !real });
      const changes = (found.changes || []).map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join("\n");
      of("repair-said").textContent = real ? `It is ${found.state}. Choose it and replay it.` : `It fits.\n${changes || "Nothing changes."}`;
      if (real) await list();
    } catch (error) {
      of("repair-said").textContent = error instanceof SyntaxError ? `This is not JSON: ${error.message}` : error.message;
    }
  }

  // ---- many records: the plan, then the action

  function commandOf(action, records) {
    const partitions = Map.groupBy(records, (each) => each.partition);
    const why = action === "dismiss" && of("why").value ? ` --why '${of("why").value.replaceAll("'", "'\\''")}'` : "";
    return [...partitions].map(([partition, some]) => `hub dlq ${action} ${topic} ${some.map((each) => each.offset).join(" ")} -p ${partition}${action === "replay" && of("as-is").checked ? " --as-is" : ""}${why}`).join("\n");
  }

  async function plan(action) {
    const records = chosen();
    const body = { records: records.map((each) => [each.partition, each.offset]) };
    if (action === "replay") body.as_is = of("as-is").checked;
    else if (of("why").value) body.why = of("why").value;
    planned = { action, body };
    of("plan").hidden = false;
    of("plan-title").textContent = `${action === "replay" ? "Replay" : "Dismiss"} ${number(records.length, "record")}?`;
    of("plan-command").textContent = commandOf(action, records);
    of("plan-confirm").textContent = action === "replay" ? "Replay" : "Dismiss";
    of("plan-confirm").disabled = true;
    try {
      of("plan-steps").textContent = action === "replay" ? await replayed(body) : records.map((each) => `${each.partition}@${each.offset}: ${each.state} → dismissed`).join("\n");
      of("plan-confirm").disabled = false;
    } catch (error) {
      of("plan-steps").textContent = error.message;
    }
    of("plan-title").focus();
  }

  async function replayed(body) {
    const found = await ask(`/dlq/${encodeURIComponent(topic)}/replay`, { ...body, dry_run: true });
    return found.letters.map((each) => (each.done === "before" ? `${each.letter}: was replayed before` : `${each.letter} → ${each.to}${each.repaired ? ", repaired" : ""}${each.later?.events ? `; ${number(each.later.events, "later event")} of its key` : ""}`)).join("\n");
  }

  async function carryOut() {
    of("plan-confirm").disabled = true;
    try {
      const found = await ask(`/dlq/${encodeURIComponent(topic)}/${planned.action}`, planned.body);
      of("plan").hidden = true;
      await list();
      of("letters-said").textContent = `${number(found.letters.length, "record")} ${planned.action === "replay" ? "replayed" : "dismissed"}. ${of("letters-said").textContent}`;
      count();
    } catch (error) {
      of("plan-steps").textContent = error.message;
    }
  }

  count();
  if (!topic) return;
  of("filter").addEventListener("submit", (event) => event.preventDefault());
  of("state").addEventListener("change", list);
  of("words").addEventListener("input", draw);
  of("replay").addEventListener("click", () => plan("replay"));
  of("dismiss").addEventListener("click", () => plan("dismiss"));
  of("plan-confirm").addEventListener("click", carryOut);
  of("plan-cancel").addEventListener("click", () => (of("plan").hidden = true));
  of("repair").addEventListener("submit", repair);
  list();
})();
