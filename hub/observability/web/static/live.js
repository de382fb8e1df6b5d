// The page keeps itself fresh without replacing what did not change: focus, selection and open parts stay.
//
//   tick     each second the body says "hub:tick"; a hidden element fetches the fragments (not while hidden or paused)
//   patch    an htmx swap style: each element of the answer is merged into the one with the same id
//   flash    what changed inside [data-flash] lights up; changed fields are also written into the list of changes
//   wire     says whether the stream of the looked-up row is open
"use strict";
(() => {
  const MOST_CHANGES = 8;
  const paused = () => document.body.dataset.paused !== undefined;
  const text = (element) => element.textContent.trim();

  // ---- patch: merge `next` into `now`

  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || null : null);
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

  function patch(now, next, changes) {
    if (now.isEqualNode(next)) return;
    if (now.nodeType !== 1) {
      now.nodeValue = next.nodeValue;
      return;
    }
    if (now.dataset.flash !== undefined && text(now) !== text(next)) {
      changes.push({ element: now, field: now.dataset.field, from: text(now), to: text(next) });
    }
    patchAttributes(now, next);
    if (now.dataset.keep === undefined) patchChildren(now, next, changes);
  }

  function patchAttributes(now, next) {
    // What the reader did stays: an opened part, a lit-up field, the wire's state.
    const own = (name) => name === "open" || name === "data-changed" || now.dataset.keep !== undefined;
    for (const { name } of [...now.attributes]) {
      if (!own(name) && !next.hasAttribute(name) && name !== "class") now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (!own(name) && now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    if (now.nodeName === "INPUT" && now !== document.activeElement) now.value = next.value;
  }

  function patchChildren(now, next, changes) {
    const keyed = new Map([...now.children].filter(keyOf).map((child) => [keyOf(child), child]));
    let cursor = now.firstChild;
    for (const child of [...next.childNodes]) {
      const key = keyOf(child);
      const match = key ? keyed.get(key) : cursor && alike(cursor, child) ? cursor : null;
      if (match && match.nodeName === child.nodeName) {
        if (match === cursor) cursor = cursor.nextSibling;
        else now.insertBefore(match, cursor);
        patch(match, child, changes);
      } else {
        now.insertBefore(child, cursor);
        if (child.nodeType === 1) htmx.process(child);
      }
    }
    while (cursor) {
      const gone = cursor;
      cursor = cursor.nextSibling;
      // Lets the stream extension close the connection that belongs to it.
      if (gone.nodeType === 1) htmx.trigger(gone, "htmx:beforeCleanupElement");
      gone.remove();
    }
  }

  htmx.defineExtension("patch", {
    isInlineSwap: (style) => style === "patch",
    handleSwap: (style, _target, fragment) => {
      if (style !== "patch") return false;
      for (const next of [...fragment.children]) {
        const now = document.getElementById(next.id);
        if (!now || (now.dataset.calm !== undefined && now.matches(":hover, :focus-within"))) continue;
        const changes = [];
        const before = now.dataset.state;
        patch(now, next, changes);
        changes.forEach(({ element }) => flash(element));
        if (next.id === "card") tell(now, before, changes);
      }
      return true;
    },
  });

  // ---- flash, and the list of changes

  function flash(element) {
    delete element.dataset.changed;
    void element.offsetWidth; // restarts the animation
    element.dataset.changed = "";
  }

  function tell(card, before, changes) {
    const after = card.dataset.state;
    if (after !== before) note(after === "present" ? "the row appeared" : after === "trouble" ? "not readable" : "the row was deleted");
    else for (const { field, from, to } of changes) if (field) note(field, from, to);
  }

  function note(what, from, to) {
    const list = document.getElementById("changes");
    if (!list) return;
    list.querySelectorAll("li.quiet").forEach((each) => each.remove());
    const line = document.createElement("li");
    line.append(
      part("time", new Date().toISOString().slice(11, 19), "quiet"),
      part("span", what, "what"),
      ...(to === undefined ? [] : [both(from, to)]),
    );
    list.prepend(line);
    while (list.children.length > MOST_CHANGES) list.lastChild.remove();
  }

  function both(from, to) {
    const values = document.createElement("span");
    values.append(part("del", from), " ", part("ins", to));
    return values;
  }

  function part(tag, words, name = "") {
    const element = document.createElement(tag);
    element.textContent = words;
    if (name) element.className = name;
    return element;
  }

  // ---- tick, pause, offline

  let answered = new Date();
  setInterval(() => {
    if (!document.hidden && !paused()) htmx.trigger(document.body, "hub:tick");
  }, 1000);

  const offline = (is) => {
    const banner = document.getElementById("offline");
    if (is && banner.hidden) document.getElementById("offline-since").textContent = answered.toTimeString().slice(0, 8);
    banner.hidden = !is;
  };
  document.body.addEventListener("htmx:sendError", () => offline(true));
  document.body.addEventListener("htmx:responseError", () => offline(true));
  // A page that is refreshed may have become an error: what it showed is gone, or its peer is away. That is an answer, too.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    const page = (xhr.getResponseHeader("Content-Type") || "").startsWith("text/html");
    if (!page || ![400, 404, 503].includes(xhr.status)) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  });
  document.body.addEventListener("htmx:afterOnLoad", () => {
    answered = new Date();
    offline(false);
  });

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const cause = event.detail.requestConfig.triggeringEvent;
    if (paused() && cause && /^(sse:|hub:tick)/.test(cause.type)) event.preventDefault();
  });

  const pause = document.getElementById("pause");
  pause.addEventListener("click", () => {
    document.body.toggleAttribute("data-paused");
    pause.setAttribute("aria-pressed", String(paused()));
    pause.textContent = paused() ? "Go on" : "Pause";
    wire();
    if (!paused()) htmx.trigger(document.body, "hub:resume");
  });

  // ---- wire: is the stream of the row open

  let open = false;
  function wire(now = open) {
    open = now;
    const sign = document.getElementById("wire");
    if (!sign) return;
    sign.dataset.state = paused() ? "paused" : open ? "open" : "connecting";
    sign.textContent = paused() ? "paused" : open ? "live" : "connecting";
  }
  document.body.addEventListener("htmx:sseOpen", () => wire(true));
  document.body.addEventListener("htmx:sseError", () => wire(false));
  document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (paused()) event.preventDefault(); // a list of messages stands still
  });
  // A list that grows by itself keeps its newest so many.
  document.body.addEventListener("htmx:sseMessage", () => {
    for (const list of document.querySelectorAll("[data-most]")) {
      while (list.children.length > Number(list.dataset.most)) list.lastElementChild.remove();
    }
  });

  // ---- the form

  document.body.addEventListener("change", (event) => {
    if (event.target.dataset.resubmit === undefined) return;
    event.target.form.elements.key.value = ""; // another view has other keys
    event.target.form.requestSubmit();
  });
})();
