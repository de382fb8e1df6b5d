// Runs before the first paint, so that a chosen theme does not flash. No choice: the system's.
"use strict";
{
  const chosen = localStorage.getItem("hub-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
}
