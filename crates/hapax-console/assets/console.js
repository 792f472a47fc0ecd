// The console works without this file: pages, links and forms. This file adds the theme, keyboard
// shortcuts, a filter that responds while the user types, and live figures.
"use strict";

(() => {
  const root = document.documentElement;
  const THEME = "hapax-console-theme";

  const stored = () => {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null; // A browser that keeps nothing has the theme of its system.
    }
  };
  // Before anything is painted.
  const theme = stored();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  const isDark = () =>
    root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;

  function themes() {
    const button = document.getElementById("theme");
    const name = () => (button.textContent = isDark() ? "Light" : "Dark");
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem(THEME, root.dataset.theme);
      } catch {
        // It holds for this page.
      }
      name();
    });
  }

  // The rows of a page, in order, which the keyboard can reach.
  const rows = () => [...document.querySelectorAll("main [data-open]")].filter((row) => row.offsetParent);

  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement);
    const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step;
    const row = all[Math.min(Math.max(next, 0), all.length - 1)];
    row.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  // A check box takes no text.
  const isTyped = (target) =>
    target instanceof HTMLElement &&
    (target.matches("input:not([type=checkbox]), textarea, select") || target.isContentEditable);

  const boxes = () => [...document.querySelectorAll("#selection td.pick input")];

  // Says how many rows are selected, and offers to select all of them.
  function selection() {
    const form = document.getElementById("selection");
    if (!form) return;
    const count = boxes().filter((box) => box.checked).length;
    for (const button of form.querySelectorAll(".bulk button")) button.disabled = count === 0;
    document.getElementById("selected").textContent = count ? `${count} selected` : "";
    const head = form.querySelector("th.pick");
    if (head && !head.querySelector("input")) {
      const all = document.createElement("input");
      all.type = "checkbox";
      all.setAttribute("aria-label", "Select all rows of this page");
      head.replaceChildren(all);
    }
    const all = head?.querySelector("input");
    if (all) all.checked = count > 0 && count === boxes().length;
  }

  function selects() {
    document.addEventListener("change", (event) => {
      if (!(event.target instanceof HTMLInputElement) || !event.target.closest("#selection .pick")) return;
      if (event.target.closest("th")) {
        for (const box of boxes()) box.checked = event.target.checked;
      }
      selection();
    });
    // The browser keeps check boxes when it comes back to a page.
    addEventListener("pageshow", selection);
    selection();
  }

  // Selects the row of the focused link.
  function pick() {
    const row = document.activeElement?.closest("tr");
    row?.querySelector(".pick input")?.click();
  }

  // On a narrow screen the navigation scrolls sideways.
  function showPlace() {
    const here = document.querySelector("body > nav [aria-current]");
    const nav = here?.closest("nav");
    if (nav) nav.scrollLeft = here.offsetLeft - (nav.clientWidth - here.offsetWidth) / 2;
  }

  function keyboard() {
    const filter = document.getElementById("filter");
    const help = document.getElementById("help");
    const show = () => help && !help.open && help.showModal();
    const keys = document.getElementById("keys");
    if (keys && help) {
      keys.hidden = false;
      keys.addEventListener("click", show);
    }
    let goes = -Infinity; // When `g` was hit: what follows within two seconds is a place.
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
      if (help && help.open) return;
      if (event.key === "Escape" && filter) {
        // Clearing by the browser sends no event in time, so the field is cleared here.
        if (filter.value || document.activeElement === filter) {
          event.preventDefault();
          filter.value = "";
          filter.dispatchEvent(new Event("input", { bubbles: true }));
          filter.blur();
        }
        return;
      }
      if (isTyped(event.target)) return;
      if (performance.now() - goes < 2000) {
        goes = -Infinity;
        const place = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
        if (place) {
          event.preventDefault();
          place.click();
        }
        return;
      }
      switch (event.key) {
        case "/":
          if (!filter) return;
          filter.focus();
          filter.select();
          break;
        case "g":
          goes = performance.now();
          break;
        case "j":
          move(1);
          break;
        case "k":
          move(-1);
          break;
        case "x":
          pick();
          break;
        case "?":
          show();
          break;
        default:
          return;
      }
      event.preventDefault();
    });
  }

  // Replaces parts of this page by those of the page at `url`.
  async function take(url, ids, signal) {
    const answer = await fetch(url, { signal, redirect: "manual" });
    if (answer.type === "opaqueredirect") return location.reload(); // Signed out.
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ids) {
      const now = document.getElementById(id);
      const then = page.getElementById(id);
      if (now && then) staying(now, () => now.replaceWith(document.adoptNode(then)));
    }
  }

  // A relay makes the attempt that an action has asked for a moment later.
  function liveAttempt() {
    if (!/^\?said=(replayed|retried|edited)$/.test(location.search)) return;
    for (const wait of [1000, 4000, 8000]) setTimeout(() => take(location.href, ["results"]).catch(() => {}), wait);
  }

  // Asks the server for the page with this filter, and takes its list and its note.
  function liveFilter() {
    const form = document.getElementById("filter-form");
    if (!form) return;
    const filter = document.getElementById("filter");
    let timer = 0;
    let asked = new AbortController();
    const ask = async () => {
      const url = new URL(form.action, location.href);
      url.search = filter.value.trim() ? new URLSearchParams({ q: filter.value }) : "";
      history.replaceState(null, "", url);
      asked.abort();
      asked = new AbortController();
      try {
        await take(url, ["results", "filter-note"], asked.signal);
        const wrong = document.querySelector("#filter-note.wrong");
        if (wrong) filter.setAttribute("aria-invalid", "true");
        else filter.removeAttribute("aria-invalid");
        selection();
        root.dataset.filtered = filter.value;
      } catch (error) {
        if (error.name !== "AbortError") say("lost", "the console does not answer");
      }
    };
    filter.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, 150);
    });
  }

  function say(state, words) {
    const live = document.getElementById("live");
    if (!live || (live.dataset.state === state && live.textContent === words)) return;
    live.dataset.state = state;
    live.textContent = words;
  }

  // Replaces a part of the page, and keeps the focus on the same link.
  function staying(part, replace) {
    const at = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    replace();
    if (!at) return;
    const links = [...document.querySelectorAll("main a")];
    links.find((link) => link.getAttribute("href") === at)?.focus();
  }

  // Inserts the received parts into the page.
  function put(parts) {
    for (const [id, html] of Object.entries(parts)) {
      const place = document.querySelector(`[data-live="${CSS.escape(id)}"]`);
      if (!place) continue;
      const fresh = new DOMParser().parseFromString(html, "text/html").body;
      if (fresh.innerHTML === place.dataset.told) continue;
      place.dataset.told = fresh.innerHTML;
      staying(place, () => place.replaceChildren(...fresh.childNodes));
    }
  }

  function liveFigures() {
    // The sign-in page has no navigation, and the customer portal no live figures.
    if (!document.querySelector("body > nav") || !document.getElementById("live")) return;
    let wasLost = false;
    let pause = 1000;
    const open = () => {
      const range = new URLSearchParams(location.search).get("range");
      const source = new EventSource(range ? `/console/live?${new URLSearchParams({ range })}` : "/console/live");
      source.addEventListener("message", (event) => {
        const told = JSON.parse(event.data);
        pause = 1000;
        if (told.trouble) return say("lost", told.trouble);
        say("live", wasLost ? "live again" : "live");
        put(told);
      });
      source.addEventListener("error", async () => {
        wasLost = true;
        source.close();
        // Too many viewers, a server that restarts, or a session that has ended?
        let words = "connection lost, trying again";
        try {
          const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
          if (answer.type === "opaqueredirect") words = "signed out: load the page again";
          else if (answer.ok) words = "not live for now, trying again";
        } catch {
          // The server does not respond.
        }
        say("lost", words);
        setTimeout(open, pause);
        pause = Math.min(pause * 1.6, 15000);
      });
      addEventListener("pagehide", () => source.close(), { once: true });
    };
    open();
  }

  document.addEventListener("DOMContentLoaded", () => {
    themes();
    keyboard();
    liveFilter();
    liveFigures();
    liveAttempt();
    selects();
    showPlace();
  });
})();
