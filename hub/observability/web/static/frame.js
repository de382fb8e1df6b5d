// What every page has: the navigation and its drawer, keys, search with suggestions, the menu of the user, the theme.
"use strict";
(() => {
  const LETTER_WITHIN_MS = 1500;
  const ASK_AFTER_MS = 120;
  const MOST_SUGGESTIONS = 12;
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const closesOutside = (dialog) => dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

  // ---- the navigation: hidden by choice where it has a column, else in a drawer

  const menu = byId("menu");
  const pages = byId("pages");
  const drawer = byId("drawer");
  const narrow = matchMedia("(max-width: 1000px)");

  function showState() {
    const shown = narrow.matches ? drawer.open : root.dataset.pages !== "hidden";
    menu.setAttribute("aria-expanded", String(shown));
  }

  function toggleColumn() {
    if (root.dataset.pages === "hidden") delete root.dataset.pages;
    else root.dataset.pages = "hidden";
    localStorage.setItem("hub-pages", root.dataset.pages || "shown");
  }

  function openDrawer() {
    drawer.append(pages);
    drawer.showModal();
    (pages.querySelector("[aria-current]") || pages.querySelector("a")).focus();
  }

  if (menu) {
    menu.addEventListener("click", () => {
      if (narrow.matches) openDrawer();
      else toggleColumn();
      showState();
    });
    drawer.addEventListener("close", () => {
      document.querySelector(".frame").prepend(pages);
      showState();
    });
    closesOutside(drawer);
    narrow.addEventListener("change", () => {
      if (drawer.open) drawer.close();
      showState();
    });
    showState();
  }

  // ---- keys, where no text is typed: "/" search, "f" the page's filter, "g" and a letter a page, "?" the list

  const keyboard = byId("keyboard");
  const find = byId("find");
  let went = 0;

  const types = (element) => element.matches("input, select, textarea, [contenteditable]");

  function focus(element) {
    if (!element) return false;
    element.focus();
    if (element.select) element.select();
    return true;
  }

  function onKey(event) {
    const isFind = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";
    if (isFind && !document.querySelector("dialog[open]") && focus(find)) return event.preventDefault();
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target instanceof Element ? event.target : document.body;
    if (event.key === "Escape" && types(at)) return at.blur();
    if (types(at) || document.querySelector("dialog[open]")) return;
    const now = Date.now();
    const link = now - went < LETTER_WITHIN_MS && /^[a-z]$/.test(event.key) && document.querySelector(`[data-go="${event.key}"]`);
    went = 0;
    if (link) link.click();
    else if (event.key === "g") went = now;
    else if (event.key === "?" && keyboard) keyboard.showModal();
    else if (event.key === "/" && focus(find)) event.preventDefault();
    else if (event.key === "f" && focus(document.querySelector("[data-filter]"))) event.preventDefault();
  }

  document.addEventListener("keydown", onKey);
  if (keyboard) {
    byId("keys-button").addEventListener("click", () => keyboard.showModal());
    closesOutside(keyboard);
  }

  // ---- suggestions: what the search finds for what is typed; an arrow chooses one, Enter goes there

  const list = byId("suggestions");
  let asked = 0;
  let chosen = -1;

  function show(options) {
    list.replaceChildren(...options);
    choose(-1);
    list.hidden = !options.length;
    find.setAttribute("aria-expanded", String(!list.hidden));
  }

  function choose(number) {
    chosen = number;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === number)));
    const option = list.children[number];
    if (option) {
      find.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else find.removeAttribute("aria-activedescendant");
  }

  function option({ name, kind, href }, number) {
    const line = document.createElement("li");
    line.id = `suggestion-${number}`;
    line.setAttribute("role", "option");
    line.dataset.href = href;
    const [words, what] = [document.createElement("span"), document.createElement("span")];
    words.textContent = name;
    what.textContent = kind;
    what.className = "quiet";
    line.append(words, what);
    return line;
  }

  async function suggest() {
    const words = find.value.trim();
    const mine = ++asked;
    if (!words) return show([]);
    await new Promise((resolve) => setTimeout(resolve, ASK_AFTER_MS));
    if (mine !== asked) return;
    try {
      const answer = await fetch(`/api/search?${new URLSearchParams({ q: words })}`);
      if (!answer.ok || mine !== asked) return;
      const found = (await answer.json()).groups.flatMap(([, , hits]) => hits);
      found.sort((one, other) => other.score - one.score);
      if (mine === asked && document.activeElement === find) show(found.slice(0, MOST_SUGGESTIONS).map(option));
    } catch {
      show([]); // the server is away: Enter leads to its page, or to the browser's error
    }
  }

  function onSearchKey(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) return;
      event.preventDefault();
      const count = list.children.length + 1; // one place is the field itself
      choose(((chosen + 1 + (event.key === "ArrowDown" ? 1 : count - 1)) % count) - 1);
    } else if (event.key === "Enter" && chosen >= 0) {
      event.preventDefault();
      location.assign(list.children[chosen].dataset.href);
    } else if (event.key === "Escape" && !list.hidden) {
      event.stopPropagation();
      asked++;
      show([]);
    }
  }

  if (find) {
    find.addEventListener("input", suggest);
    find.addEventListener("keydown", onSearchKey);
    find.addEventListener("blur", () => {
      asked++;
      show([]);
    });
    // Before the field loses the focus, which closes the list.
    list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const line = event.target.closest("li");
      if (line) location.assign(line.dataset.href);
    });
  }

  // ---- the menu of the user

  const user = document.querySelector("details.user");
  if (user) {
    document.addEventListener("click", (event) => {
      if (!user.contains(event.target)) user.open = false;
    });
    user.addEventListener("focusout", (event) => {
      if (event.relatedTarget && !user.contains(event.relatedTarget)) user.open = false;
    });
    user.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !user.open) return;
      user.open = false;
      user.querySelector("summary").focus();
    });
  }

  // ---- the theme

  const themes = ["auto", "light", "dark"];
  const named = byId("theme-name");
  const theme = () => root.dataset.theme || "auto";
  named.textContent = theme();
  byId("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    localStorage.setItem("hub-theme", next);
    named.textContent = next;
  });
})();
