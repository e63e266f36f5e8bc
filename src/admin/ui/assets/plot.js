// Plots: the caption tells the mark under the pointer or with the focus. Marks are links, so they need no other key.

function tell(event) {
  const mark = event.target.closest?.("svg a");
  const caption = mark?.closest("figure")?.querySelector("[data-keep]");
  if (caption) caption.textContent = mark.querySelector("title").textContent;
}

document.addEventListener("pointerover", tell);
document.addEventListener("focusin", tell);
