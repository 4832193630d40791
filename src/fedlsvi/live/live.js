"use strict";
// Puts in each part of the page that the server sends, and keeps what the reader has chosen.
const hidden = new Set();
const connection = document.getElementById("connection");

function choose() {
  for (const line of document.querySelectorAll("path.line"))
    line.toggleAttribute("hidden", hidden.has(line.dataset.run));
  for (const button of document.querySelectorAll(".legend button"))
    button.setAttribute("aria-pressed",
      String(!JSON.parse(button.dataset.runs).every(run => hidden.has(run))));
}

function put(section, text) {
  const focused = section.contains(document.activeElement) ? document.activeElement : null;
  const buttons = [...section.querySelectorAll("button")];
  const at = buttons.indexOf(focused);
  const scrolled = [...section.querySelectorAll(".scroll")].map(box => [box.scrollLeft, box.scrollTop]);
  section.innerHTML = text;
  section.querySelectorAll(".scroll").forEach((box, i) => {
    box.tabIndex = 0;
    if (scrolled[i]) [box.scrollLeft, box.scrollTop] = scrolled[i];
  });
  for (const cell of section.querySelectorAll("th")) cell.scope = "col";
  if (at >= 0) section.querySelectorAll("button")[at]?.focus();
}

document.addEventListener("click", event => {
  const button = event.target.closest?.(".legend button");
  if (!button) return;
  const shown = button.getAttribute("aria-pressed") === "true";
  for (const run of JSON.parse(button.dataset.runs)) shown ? hidden.add(run) : hidden.delete(run);
  choose();
});

const source = new EventSource("events");
source.onmessage = event => {
  const { parts, said } = JSON.parse(event.data);
  for (const [name, text] of Object.entries(parts)) put(document.getElementById(name), text);
  choose();
  if (said) document.getElementById("said").textContent = said;
  connection.className = "sub";
  connection.textContent = "as of " + new Date().toISOString().slice(11, 19) + " UTC";
};
source.onerror = () => {
  connection.className = "lost";
  connection.textContent = "not connected: trying again; what is shown may be old";
};
