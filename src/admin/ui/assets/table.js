// Tables: search while typing (PAG-5), keys for rows, and buttons that copy a command.

import { show } from "./live.js";

const WAIT = 250; // until the typing pauses
const form = document.querySelector("form.filter");
let timer = 0;

function search() {
  const query = new URLSearchParams(new FormData(form));
  for (const [key, value] of [...query]) if (value === "") query.delete(key);
  const url = `${location.pathname}${query.size ? `?${query}` : ""}`;
  history.replaceState(null, "", url);
  show(url, true);
}

form?.addEventListener("input", (event) => {
  clearTimeout(timer);
  timer = setTimeout(search, event.target.matches("select") ? 0 : WAIT);
});
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  search();
});

document.addEventListener("click", async (event) => {
  const news = event.target.closest("a.news");
  if (news) {
    event.preventDefault();
    show(location.href, true);
  }
  const button = event.target.closest("button.copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "selected";
  }
  setTimeout(() => (button.textContent = "copy"), 2000);
});

// `/` goes to the search, j and k go through the rows. Keys in fields are the fields'.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const step = { j: 1, k: -1 }[event.key];
  if (event.key === "/") {
    const field = document.querySelector("input[type=search]");
    if (field) event.preventDefault();
    field?.focus();
  } else if (step) {
    const links = [...document.querySelectorAll("main tbody th a")];
    const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step]?.focus();
  }
});
