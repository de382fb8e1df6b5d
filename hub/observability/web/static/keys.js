// Keys that act wherever no text is typed: "/" search, "f" the page's filter, "g" and a letter a page, "?" the list.
"use strict";
(() => {
  const LETTER_WITHIN_MS = 1500;
  const dialog = document.getElementById("keyboard");
  let went = 0;

  const types = (element) => element.matches("input, select, textarea, [contenteditable]");

  function focus(element) {
    if (!element) return false;
    element.focus();
    if (element.select) element.select();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = event.target instanceof Element ? event.target : document.body;
    if (event.key === "Escape" && types(at)) return at.blur();
    if (types(at) || dialog.open) return;
    const now = Date.now();
    const link = now - went < LETTER_WITHIN_MS && /^[a-z]$/.test(event.key) && document.querySelector(`[data-go="${event.key}"]`);
    went = 0;
    if (link) link.click();
    else if (event.key === "g") went = now;
    else if (event.key === "?") dialog.showModal();
    else if (event.key === "/" && focus(document.getElementById("find"))) event.preventDefault();
    else if (event.key === "f" && focus(document.querySelector("[data-filter]"))) event.preventDefault();
  });

  // On a phone the navigation is wider than the screen.
  const here = document.querySelector(".sections [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "nearest" });

  document.getElementById("keys-button").addEventListener("click", () => dialog.showModal());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
})();
