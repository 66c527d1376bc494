// Everything that a page does by itself: times in the browser's zone, live parts, the live tail.
// Without it the pages show the same, once. Texts of messages are only ever set as text.
"use strict";

const MOST_ROWS = 200;

function localTimes(root) {
  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  for (const element of root.querySelectorAll("time[datetime]")) {
    const time = new Date(element.dateTime);
    if (element.title || Number.isNaN(time.getTime())) continue;
    element.title = `${element.textContent}`;
    element.textContent =
      `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ` +
      `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
  }
}

// Parts of a page that follow the cluster

function keepLive(button, seconds) {
  const label = button.lastElementChild;
  let live = sessionStorage.getItem("live") !== "off";
  let asking = false;

  function show() {
    button.setAttribute("aria-pressed", String(live));
    label.textContent = live ? "Live" : "Paused";
  }

  // What somebody is marking stays as it is.
  function isMarked(part) {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  // A link of the part that has the focus, or a region that does, has it afterwards as well.
  function focused(part) {
    const element = document.activeElement;
    if (!part.contains(element)) return null;
    for (const name of ["href", "aria-labelledby", "id"]) {
      if (element.hasAttribute(name)) return `[${name}="${CSS.escape(element.getAttribute(name))}"]`;
    }
    return null;
  }

  async function look() {
    if (!live || document.hidden || asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = [...document.querySelectorAll("[data-live]")];
      const fresh = parts.map((part) => page.querySelector(`[data-live="${part.dataset.live}"]`));
      if (fresh.some((part) => part === null)) {
        // Another page, such as one that says that the cluster is there again.
        location.reload();
        return;
      }
      parts.forEach((part, number) => {
        if (isMarked(part)) return;
        const focus = focused(part);
        localTimes(fresh[number]);
        const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
        part.replaceChildren(...document.adoptNode(fresh[number]).childNodes);
        [...part.querySelectorAll(".scroll")].forEach((each, index) => {
          each.scrollLeft = scrolled[index] || 0;
        });
        if (focus) part.querySelector(focus)?.focus({ preventScroll: true });
      });
      show();
    } catch (error) {
      label.textContent = "No answer";
    } finally {
      asking = false;
    }
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    live = !live;
    sessionStorage.setItem("live", live ? "on" : "off");
    show();
    look();
  });
  show();
  setInterval(look, seconds * 1000);
}

// The live tail

function follow(table) {
  const rows = table.tBodies[0];
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  let shown = 0;
  let skipped = 0;
  let paused = false;

  function cell(name, kind, text) {
    const element = document.createElement(name);
    if (kind) element.className = kind;
    element.textContent = text;
    return element;
  }

  function stored(message) {
    const time = document.createElement("time");
    time.dateTime = new Date(message.stored).toISOString();
    time.textContent = time.dateTime;
    return time;
  }

  function row(message) {
    const line = document.createElement("tr");
    line.className = "fresh";
    const when = cell("td", "wide nowrap when", "");
    when.append(stored(message));
    const body = cell("th", "body", "");
    body.scope = "row";
    const link = cell("a", "", message.excerpt || "(empty)");
    link.href = "/message?" + new URLSearchParams({
      topic: table.dataset.topic,
      broker: message.broker,
      queue: message.queue,
      offset: message.offset,
    });
    const below = cell("div", "sub narrow", "");
    below.append(stored(message));
    body.append(link, below);
    const tag = cell("td", "wide", "");
    if (message.tag) tag.append(cell("span", "tag", message.tag));
    const keys = cell("td", "wide", "");
    for (const key of message.keys) keys.append(cell("span", "key", key), " ");
    line.append(when, body, tag, keys,
      cell("td", "wide nowrap", `${message.broker}/${message.queue}/${message.offset}`));
    localTimes(line);
    return line;
  }

  function tell() {
    const left = skipped ? `, ${skipped.toLocaleString("en")} more came too fast to show` : "";
    state.textContent = `${paused ? "Paused" : "Live"}: ${shown.toLocaleString("en")} messages${left}`;
  }

  const events = new EventSource(table.dataset.events);
  events.addEventListener("open", () => {
    state.textContent = "Waiting for messages …";
  });
  events.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    if (paused || (!part.messages.length && !part.skipped)) return;
    shown += part.messages.length;
    skipped += part.skipped;
    part.messages.sort((a, b) => a.stored - b.stored);
    for (const message of part.messages) rows.prepend(row(message));
    while (rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
    table.hidden = false;
    tell();
  });
  events.addEventListener("end", () => {
    events.close();
    state.textContent = "The tail has ended after a quarter of an hour. Reload the page to go on.";
  });
  events.addEventListener("error", () => {
    if (events.readyState === EventSource.CLOSED) {
      state.textContent = "The tail could not be opened: too many may be open, or the cluster does not answer.";
    } else {
      state.textContent = "The connection was lost. Trying again …";
    }
  });
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    tell();
  });
}

localTimes(document);
for (const form of document.querySelectorAll("form[data-confirm]")) {
  form.addEventListener("submit", (event) => {
    if (!confirm(form.dataset.confirm)) event.preventDefault();
  });
}
const refresh = Number(document.body.dataset.refresh);
const live = document.getElementById("live");
if (refresh && live) keepLive(live, refresh);
const tail = document.getElementById("tail");
if (tail) follow(tail);
