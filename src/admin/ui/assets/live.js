// Keeps a page current (PAG-6). The relay renders every text: this module fetches the same page again, and moves what
// differs into place, so that focus, scroll and selection stay. One event stream per tab tells when to look.

const html = document.documentElement;
const asof = document.getElementById("asof");
const word = document.getElementById("asof-word");
const age = document.getElementById("asof-age");
const main = document.getElementById("main");

const TURN = 1000; // at most one look a second
const IDLE = 5; // turns between two looks without news, for ages
const KEEP = new Set(["INPUT", "SELECT", "TEXTAREA", "BUTTON"]);

let source = null;
let asked = null; // the look under way
let lastGood = Date.now();
let turns = 0;
let isNews = false;
let isOver = false; // the stream has told all there is

html.classList.add("js");

function say(is, text) {
  if (asof.dataset.is !== is) {
    asof.dataset.is = is;
    word.textContent = text;
  }
}

function span(ms) {
  const seconds = Math.round(ms / 1000);
  const [big, small] = [Math.floor(seconds / 60), seconds % 60];
  return big >= 60 ? `${Math.floor(big / 60)}h${big % 60}m` : big > 0 ? `${big}m${small}s` : `${seconds}s`;
}

// Makes `old` like `fresh`: texts and attributes in place. A list with keys keeps its order: a row that is gone is struck
// out, and new rows wait for a click, or come last where the list says so.
function morph(old, fresh, all) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE || KEEP.has(old.tagName) || "keep" in old.dataset) return;
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if ("rows" in old.dataset && !all) rows(old, fresh);
  else children(old, fresh, all);
}

function same(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.id === b.id && a.dataset?.key === b.dataset?.key;
}

const isNamed = (node) => Boolean(node.id || node.dataset?.key);

// A part with a name is found again wherever it is: no other part becomes it, and it becomes no other.
function children(old, fresh, all) {
  const theirs = [...fresh.childNodes];
  theirs.forEach((node, index) => {
    const here = old.childNodes[index];
    const rest = isNamed(node) ? [...old.childNodes].slice(index) : here ? [here] : [];
    const mine = rest.find((part) => same(part, node));
    if (mine) {
      if (mine !== here) old.insertBefore(mine, here);
      morph(mine, node, all);
    } else if (here && !isNamed(here) && !isNamed(node)) here.replaceWith(document.importNode(node, true));
    else old.insertBefore(document.importNode(node, true), here ?? null);
  });
  while (old.childNodes.length > theirs.length) old.lastChild.remove();
}

function rows(old, fresh) {
  const theirs = new Map([...fresh.children].map((row) => [row.dataset.key, row]));
  for (const row of [...old.children]) {
    const now = theirs.get(row.dataset.key);
    theirs.delete(row.dataset.key);
    if (now) morph(row, now, false);
    else if (old.dataset.rows === "append") row.remove();
    else row.classList.add("gone");
  }
  if (old.dataset.rows === "append") theirs.forEach((row) => old.append(document.importNode(row, true)));
  else if (theirs.size > 0) old.closest("section")?.querySelector(".news")?.removeAttribute("hidden");
}

// Fetches a page of the same kind and shows it. `all`: the reader asked for other rows.
export async function show(url, all) {
  // A tail grows by its stream alone; after the end of the client there is no such page any more.
  if (tail) return source && say("live", "live");
  asked?.abort();
  const mine = (asked = new AbortController());
  try {
    const answer = await fetch(url, { signal: mine.signal, headers: { Accept: "text/html" } });
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const next = fresh.getElementById("main");
    if (!next) throw new Error("no page");
    if (fresh.documentElement.dataset.build !== html.dataset.build) return location.reload();
    morph(main, next, all);
    document.title = fresh.title;
    lastGood = Date.now();
    isNews = false;
    turns = 0;
    if (source?.readyState === EventSource.OPEN) say("live", "live");
  } catch (error) {
    if (error.name !== "AbortError") lost();
  } finally {
    if (asked === mine) asked = null;
  }
}

function lost() {
  say("paused", "paused, the relay does not answer");
}

function news(message) {
  isNews = true;
  document.dispatchEvent(new CustomEvent("told", { detail: message.data }));
}

function open() {
  if (source || isOver || document.hidden) return;
  source = new EventSource(html.dataset.stream);
  source.onopen = () => show(location.href, false);
  source.onmessage = news;
  source.addEventListener("gap", news);
  source.addEventListener("end", () => {
    isOver = true;
    close(() => say("paused", "the stream has ended"));
  });
  // The process ends. After an upgrade another one answers already: the next turn looks, and tells if none does.
  source.addEventListener("bye", () => close(() => (turns = IDLE - 1)));
  // A refused stream is closed for good by the browser; a lost one comes back by itself.
  source.onerror = () => (source?.readyState === EventSource.CLOSED ? close(lost) : lost());
}

function close(then) {
  source?.close();
  source = null;
  then?.();
}

function turn() {
  if (document.hidden) return;
  if (!source) {
    if (++turns % IDLE === 0) open();
  } else if (!asked && (isNews || ++turns >= IDLE) && source.readyState === EventSource.OPEN) {
    show(location.href, false);
  }
  age.textContent = asof.dataset.is === "paused" ? ` as of ${span(Date.now() - lastGood)} ago` : "";
}

document.addEventListener("visibilitychange", () => (document.hidden ? (asked?.abort(), close()) : open()));
window.addEventListener("pagehide", () => close());
setInterval(turn, TURN);
open();

// The lines of a tail, the latest last. A reader who has scrolled up stays there.
const LINES = 500;
const tail = document.getElementById("tail");

document.addEventListener("told", (event) => {
  if (!tail) return;
  const isLast = tail.scrollTop + tail.clientHeight >= tail.scrollHeight - 4;
  const told = JSON.parse(event.detail);
  const line = document.createElement("div");
  line.textContent = told.text ? `${told.at.slice(11, 23)} ${told.text}` : `-- ${told.left_out} lines left out`;
  tail.append(line);
  while (tail.childElementCount > LINES) tail.firstElementChild.remove();
  if (isLast) tail.scrollTop = tail.scrollHeight;
});
