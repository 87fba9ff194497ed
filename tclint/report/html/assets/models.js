"use strict";
// Of several models: a table that can be sorted and filtered, and each model as a page within the page.
(() => {
  const table = document.getElementById("models");
  if (!table) return;
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const all = [...body.rows];
  const overview = document.getElementById("overview");

  // --- the table

  function size(row, column) {
    const cell = row.cells[column];
    if ("size" in cell.dataset) return Number(cell.dataset.size);
    const number = Number(cell.textContent);
    return cell.classList.contains("number") ? (Number.isNaN(number) ? -Infinity : number) : cell.textContent;
  }

  let last = -1;
  let sign = 1;
  function sort(column) {
    const isNumber = heads[column].classList.contains("number");
    sign = column === last ? -sign : isNumber ? -1 : 1;
    last = column;
    const keys = new Map(all.map((row) => [row, size(row, column)]));
    all.sort((a, b) => {
      const [one, other] = [keys.get(a), keys.get(b)];
      return sign * (isNumber ? (one === other ? 0 : one - other) : one.localeCompare(other));
    });
    heads.forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    body.append(...all);
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(column));
    head.replaceChildren(button);
  });

  function labelled(name, control) {
    const label = document.createElement("label");
    label.htmlFor = control.id;
    label.append(name, control);
    return label;
  }

  const words = Object.assign(document.createElement("input"), { id: "model-words", type: "search" });
  words.placeholder = "part of it";
  const counted = document.createElement("span");
  counted.setAttribute("aria-live", "polite");
  const tools = document.createElement("div");
  tools.className = "tools";
  tools.append(labelled(heads[0].textContent, words));

  // A choice for every column of a few short names.
  const CHOICES = 100;
  const LETTERS = 32;
  const choices = [];
  heads.forEach((head, column) => {
    const names = [...new Set(all.map((row) => row.cells[column].textContent))];
    if (column === 0 || head.classList.contains("number") || names.length < 2 || names.length > CHOICES
      || names.some((name) => name.length > LETTERS)) return;
    const select = Object.assign(document.createElement("select"), { id: `model-column-${column}` });
    select.append(new Option("all", ""), ...names.map((name) => new Option(name, name)));
    select.addEventListener("change", filter);
    choices.push([column, select]);
    tools.append(labelled(head.textContent, select));
  });
  tools.append(counted);

  function filter() {
    const part = words.value.toLowerCase();
    let shown = 0;
    for (const row of all) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(part)
        || choices.some(([column, select]) => select.value && row.cells[column].textContent !== select.value);
      shown += row.hidden ? 0 : 1;
    }
    counted.textContent = `${shown} of ${all.length} rows`;
  }
  let waiting = 0;
  words.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  overview.querySelector(".scroll").before(tools);
  filter();

  // --- pages

  const sections = [...document.querySelectorAll("section.model")];
  if (!sections.length) return;
  function route(isFirst) {
    const match = /^#model-(\d+)$/.exec(location.hash);
    const chosen = match ? sections[Number(match[1]) - 1] : undefined;
    for (const section of sections) {
      section.hidden = section !== chosen;
      for (const back of section.querySelectorAll(".back")) back.hidden = false;
      for (const closed of section.querySelectorAll(":scope > details")) closed.open = true;
    }
    overview.hidden = document.getElementById("left-out").hidden = chosen !== undefined;
    const number = chosen === undefined ? null : sections.indexOf(chosen);
    document.dispatchEvent(new CustomEvent("model", { detail: number }));
    if (isFirst && chosen === undefined) return;
    // After the browser's own scrolling to the place that the link names.
    setTimeout(() => window.scrollTo(0, 0));
    (chosen ? chosen.querySelector("h2") : document.querySelector("#overview a") || table).focus({ preventScroll: true });
  }
  window.addEventListener("hashchange", () => route(false));
  route(true);
})();
