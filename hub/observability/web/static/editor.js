// An editor over a textarea: colors, completion, and the mark of a wrong line. The textarea stays the form's field, so
// labels, screen readers, undo and phones work as in any form. Lines do not wrap, so places follow from the font.
"use strict";
window.hubEditor = (area, words) => {
  const MOST_SHOWN = 8;
  const KEYWORDS = "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL INNER CROSS ON USING AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END DISTINCT UNION ALL WITH OVER PARTITION EXISTS TRUE FALSE INTERVAL CAST CREATE REPLACE MATERIALIZED VIEW KEY EXPLAIN SHOW DESCRIBE EMIT CHANGES SUBSCRIBE BEGINNING".split(" ");
  const PART = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("[^"]*"?|`[^`]*`?)|(\b\d+(?:\.\d+)?\b)|([A-Za-z_]\w*)(?=(\s*\()?)/g;
  const made = (tag, name, more = {}) => Object.assign(document.createElement(tag), { className: name, ...more });
  const box = made("div", "editor");
  const back = made("pre", "editor-colors");
  const mark = made("i", "editor-mark", { hidden: true });
  const list = made("ul", "editor-words", { id: `${area.id}-words`, hidden: true });
  let shown = [];
  let at = 0;
  let inWord = false; // a list may open, or be drawn again, when more words are known

  back.setAttribute("aria-hidden", "true");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Completions");
  area.wrap = "off";
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  area.before(box);
  box.append(back, mark, area, list);

  // ---- colors

  function paint() {
    const parts = [];
    let done = 0;
    for (const found of area.value.matchAll(PART)) {
      const [text, comment, string, , number, word, call] = found;
      const kind = comment ? "comment" : string ? "string" : number ? "number" : word && KEYWORDS.includes(word.toUpperCase()) ? "keyword" : word && call !== undefined ? "call" : "";
      if (!kind) continue;
      parts.push(area.value.slice(done, found.index), made("span", kind, { textContent: text }));
      done = found.index + text.length;
    }
    back.replaceChildren(...parts, `${area.value.slice(done)}\n `);
    follow();
  }

  function follow() {
    back.scrollTop = area.scrollTop;
    back.scrollLeft = area.scrollLeft;
    mark.style.top = `${padding("paddingTop") + (Number(mark.dataset.line) - 1) * lineHeight() - area.scrollTop}px`;
  }

  const padding = (side) => parseFloat(getComputedStyle(area)[side]);
  const lineHeight = () => parseFloat(getComputedStyle(area).lineHeight);

  function columnWidth() {
    const ruler = made("span", "", { textContent: "0".repeat(50) });
    back.append(ruler);
    const width = ruler.getBoundingClientRect().width / 50;
    ruler.remove();
    return width;
  }

  // ---- completion

  function fragment() {
    const before = area.value.slice(0, area.selectionStart);
    const quoted = (before.match(/"/g) || []).length % 2 === 1;
    const text = quoted ? before.slice(before.lastIndexOf('"')) : before.match(/[A-Za-z_]\w*$/)?.[0] || "";
    return { text, start: area.selectionStart - text.length };
  }

  function propose(whole) {
    const { text } = fragment();
    const bare = text.replace(/^"/, "").toLowerCase();
    if (area.selectionStart !== area.selectionEnd || (!bare && !whole)) return close();
    const known = [...words(), ...KEYWORDS.map((name) => ({ name, kind: "keyword" }))];
    const fits = known.filter((each) => (text[0] === '"' ? each.kind === "topic" : true));
    const plain = (each) => each.name.replace(/^"/, "").toLowerCase();
    const begins = fits.filter((each) => plain(each).startsWith(bare) && plain(each) !== bare);
    const holds = bare.length > 1 ? fits.filter((each) => plain(each).indexOf(bare) > 0) : [];
    shown = [...begins, ...holds].slice(0, MOST_SHOWN);
    at = 0;
    if (!shown.length) close();
    inWord = true;
    if (!shown.length) return;
    list.replaceChildren(...shown.map(option));
    list.hidden = false;
    choose(0);
    place();
  }

  function option(each, number) {
    const item = made("li", "", { id: `${list.id}-${number}` });
    item.setAttribute("role", "option");
    item.append(made("span", "mono", { textContent: each.name }), made("span", "quiet", { textContent: each.detail || each.kind }));
    item.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      accept(each);
    });
    return item;
  }

  function choose(number) {
    at = (number + shown.length) % shown.length;
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === at)));
    area.setAttribute("aria-activedescendant", `${list.id}-${at}`);
  }

  function place() {
    const { start } = fragment();
    const before = area.value.slice(0, start).split("\n");
    const top = padding("paddingTop") + before.length * lineHeight() - area.scrollTop + 4;
    const left = padding("paddingLeft") + before.at(-1).length * columnWidth() - area.scrollLeft;
    list.style.top = `${top}px`;
    list.style.left = `${Math.max(0, Math.min(left, box.clientWidth - list.offsetWidth))}px`;
  }

  function close() {
    shown = [];
    inWord = false;
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  }

  function accept(each) {
    const { start } = fragment();
    close();
    write(each.name, start, area.selectionStart);
  }

  function write(text, start = area.selectionStart, end = area.selectionEnd) {
    area.focus();
    area.setSelectionRange(start, end);
    // The only way to write that undo knows.
    if (!document.execCommand("insertText", false, text)) area.setRangeText(text, start, end, "end");
    close();
    paint();
  }

  const KEYS = {
    ArrowDown: () => choose(at + 1),
    ArrowUp: () => choose(at - 1),
    Tab: () => accept(shown[at]),
    Enter: () => accept(shown[at]),
    Escape: close,
  };

  area.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      return propose(true);
    }
    if (list.hidden || event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    KEYS[event.key]();
  });
  area.addEventListener("input", (event) => {
    paint();
    mark.hidden = true;
    if (event.inputType === "insertText" && event.data && event.data.trim()) propose(false);
    else close();
  });
  area.addEventListener("scroll", () => {
    follow();
    close();
  });
  area.addEventListener("blur", close);
  paint();

  return {
    write,
    set(text) {
      area.value = text;
      area.dispatchEvent(new Event("input", { bubbles: true }));
    },
    refresh() {
      if (inWord) propose(false);
    },
    mark(line) {
      mark.hidden = !line;
      mark.dataset.line = line || 1;
      follow();
    },
  };
};
