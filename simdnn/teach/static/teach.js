"use strict";
// The form works by its button without this script. With it the answer follows what is changed; nothing is computed here.
const form = document.getElementById("form");
let asked = 0;
let waiting = 0;

async function ask(whole) {
  const address = new URL(form.action);
  address.search = new URLSearchParams(new FormData(form));
  const turn = ++asked;
  const result = document.getElementById("result");
  result.setAttribute("aria-busy", "true");
  try {
    const reply = await fetch(address);
    const text = await reply.text();
    if (turn !== asked) return; // a later question is on its way
    const page = new DOMParser().parseFromString(text, "text/html");
    if (!page.getElementById("result")) throw new Error(`${reply.status} ${reply.statusText}`);
    result.replaceWith(page.getElementById("result"));
    document.getElementById("said").textContent = document.querySelector("#result h2")?.textContent ?? "";
    if (whole) replaceForm(page.getElementById("form"));
    history.replaceState(null, "", address);
  } catch (error) {
    if (turn !== asked) return;
    const said = document.createElement("p");
    said.className = "error";
    said.setAttribute("role", "alert");
    said.textContent = `No answer from the server (${error.message}); is simdnn teach still running?`;
    result.replaceChildren(said);
    result.removeAttribute("aria-busy");
  }
}

function replaceForm(other) {
  const focus = document.activeElement;
  const typed = focus && "value" in focus ? focus.value : null;
  form.replaceChildren(...other.children);
  const again = focus && focus.id ? document.getElementById(focus.id) : null;
  if (!again) return;
  if (typed !== null && again.type !== "range") again.value = typed; // what is being typed stays
  again.focus();
}

function isSlider(field) {
  return field.type === "range";
}

if (form) {
  form.addEventListener("input", (event) => {
    if (event.target.list && (event.inputType ?? "insertReplacementText") === "insertReplacementText") ask(true); // picked
    if (!isSlider(event.target)) return;
    event.target.parentElement.querySelector("output").textContent = event.target.value;
    clearTimeout(waiting);
    waiting = setTimeout(() => ask(false), 120);
  });
  form.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement) ask(true);
  });
  form.addEventListener("focusout", (event) => {
    const field = event.target;
    if (!isSlider(field) && "defaultValue" in field && field.value !== field.defaultValue) ask(true);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(true);
  });
}
