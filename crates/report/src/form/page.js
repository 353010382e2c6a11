"use strict";
// Shows the figures of a plot at the pointer. Without the script, the page is otherwise complete.
(() => {
  const tip = document.getElementById("tip");
  const move = (event) => {
    const text = event.target instanceof Element ? event.target.getAttribute("data-tip") : null;
    tip.hidden = text === null;
    if (text === null) return;
    tip.textContent = text;
    const right = event.clientX + 16 + tip.offsetWidth > document.documentElement.clientWidth;
    tip.style.left = `${Math.max(4, event.clientX + (right ? -16 - tip.offsetWidth : 16))}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 8)}px`;
  };
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerdown", move);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
