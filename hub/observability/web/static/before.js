// Runs before the first paint, so that a chosen theme or a hidden navigation does not flash. No choice: the system's theme.
"use strict";
{
  const chosen = localStorage.getItem("hub-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  if (localStorage.getItem("hub-pages") === "hidden") document.documentElement.dataset.pages = "hidden";
}
