"use strict";
// Text from the report's data is only ever made into text nodes: see the head of tclint/report/html/page.py.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 50;
  const PRINTED_AT_MOST = 200;
  const CHILDREN_AT_MOST = 200;
  const TIPS_AT_MOST = 3;
  const text = (position) => data.texts[position];

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    for (const child of children) if (child !== null) element.append(child);
    return element;
  }

  /** `quoted` parts of a sentence as code. */
  function prose(sentence) {
    const element = make("span");
    const parts = sentence.split("`");
    const paired = parts.length % 2 === 1;
    parts.forEach((part, index) => {
      if (paired && index % 2) element.append(make("code", {}, part));
      else element.append(index && !paired ? "`" + part : part);
    });
    return element;
  }

  function significant(value, most = 3) {
    if (!value) return "0";
    const digits = Math.max(0, most - 1 - Math.floor(Math.log10(Math.abs(value))));
    return value.toFixed(Math.min(digits, 6));
  }

  function scaled(value, scales) {
    if (value === null) return "unknown";
    const [scale, unit] = scales.find(([least]) => value >= 0.9995 * least) || scales[scales.length - 1];
    return `${significant(value / scale)} ${unit}`;
  }
  const time = (us) => scaled(us, [[1e6, "s"], [1e3, "ms"], [1, "us"]]);
  const flops = (n) => scaled(n, [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1, "FLOP"]]);
  const bytes = (n) => scaled(n, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]);
  const percent = (share) => (share < 0.005 ? "0 %" : `${significant(share, 2)} %`);

  function choice(id, label, options, onChange) {
    const select = make("select", { id });
    for (const [value, shown] of options) select.append(new Option(shown, value));
    select.addEventListener("change", onChange);
    return make("label", { for: id }, label, select);
  }

  /** Buttons that page through `total()` items; `draw(from, to)` fills the list. */
  function pager(id, total, draw) {
    const before = make("button", { type: "button", id: `${id}-before` }, "Back");
    const after = make("button", { type: "button", id: `${id}-after` }, "Next");
    const shown = make("span", { id: `${id}-shown`, "aria-live": "polite" });
    let first = 0;
    function show(from, size = PAGE) {
      first = Math.max(0, Math.min(from, total() - 1));
      const last = Math.min(first + size, total());
      draw(first, last);
      shown.textContent = total() ? `${first + 1} to ${last} of ${total()}` : "none";
      before.disabled = first === 0;
      after.disabled = last >= total();
      before.hidden = after.hidden = total() <= PAGE;
    }
    before.addEventListener("click", () => show(first - PAGE));
    after.addEventListener("click", () => show(first + PAGE));
    const element = make("div", { class: "tools pages" }, before, after, shown);
    return { element, show, first: () => first };
  }

  // --- findings

  function sourceLines(rows) {
    const block = make("pre", { class: "source", tabindex: "0" });
    for (const [number, ...parts] of rows) {
      const line = make("span", {}, make("i", {}, String(number)));
      if (parts.length === 1) line.append(text(parts[0]));
      else line.append(text(parts[0]), make("mark", {}, text(parts[1])), text(parts[2]));
      block.append(line);
    }
    return block;
  }

  function change([place, removed, added]) {
    const block = make("pre", { class: "change", tabindex: "0" });
    for (const line of removed) block.append(make("span", { class: "removed" }, `- ${text(line)}`));
    for (const line of added) block.append(make("span", { class: "added" }, `+ ${text(line)}`));
    return make("div", {}, make("div", { class: "where" }, text(place)), block);
  }

  function table(header, rows, numbers) {
    const attributes = (index) => (numbers.has(index) ? { class: "number" } : {});
    const head = make("tr", {}, ...header.map((name, index) => make("th", attributes(index), name)));
    const body = rows.map((row) => make("tr", {}, ...row.map((cell, index) => make("td", attributes(index), cell))));
    return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  }

  function details(finding) {
    const body = make("div", { class: "body" });
    if (finding.source && finding.source.length) body.append(sourceLines(finding.source));
    if (finding.effect.length) {
      const rows = finding.effect.map(([gpu, gain, share, steps, calibrated]) =>
        [text(gpu) + (calibrated ? "" : " *"), text(gain), text(share), text(steps)]);
      body.append(table(["GPU", "gain per step", "of the step", "step before → after"], rows, new Set([1, 2, 3])));
      if (finding.effect.some((row) => !row[4])) {
        body.append(make("p", { class: "facts" }, "* priced with constants of that GPU's relatives"));
      }
    } else if ("unknown" in finding) {
      body.append(make("p", { class: "facts" }, "Effect unknown: ", prose(text(finding.unknown))));
    }
    if ("advice" in finding) {
      const safety = finding.safety === "advice" ? "" : ` (${finding.safety} fix, made by --fix)`;
      body.append(make("p", {}, make("b", {}, "Fix: "), prose(text(finding.advice)), safety));
    }
    for (const one of finding.changes || []) body.append(change(one));
    for (const [place, message] of finding.related || []) {
      body.append(make("p", { class: "facts" }, make("span", { class: "where" }, text(place)), ": ", prose(text(message))));
    }
    const facts = [["confidence", finding.confidence], ["fingerprint", finding.fingerprint]];
    for (const [name, value] of finding.evidence || []) facts.push([text(name), text(value)]);
    const list = make("dl");
    for (const [name, value] of facts) list.append(make("dt", {}, name), make("dd", {}, value));
    body.append(make("details", {}, make("summary", { class: "facts" }, "Evidence"), list));
    return body;
  }

  function card(finding, rank, open) {
    const layer = text(finding.layer);
    const gain = text(finding.gain);
    const head = make("span", { class: "head" },
      make("span", { class: "level" }, finding.level),
      make("span", {}, `${rank}. ${text(finding.code)} ${text(finding.name)}`),
      make("span", { class: "gain" }, gain ? `gain ${gain}` : ""),
      make("span", { class: "message" }, prose(text(finding.message))),
      make("span", { class: "where" }, text(finding.place) + (layer ? ` (${layer})` : "")
        + (text(finding.target) ? ` in ${text(finding.target)}` : "")));
    const element = make("details", { class: `finding ${finding.level}` }, make("summary", {}, head));
    // Of 5,000 findings few are opened: their details are made when they are.
    const fill = () => { if (!element.querySelector(".body")) element.append(details(finding)); };
    element.addEventListener("toggle", () => { if (element.open) fill(); });
    element.open = open;
    if (open) fill();
    element.fill = fill;
    return element;
  }

  function findings() {
    const section = document.getElementById("findings");
    section.hidden = false;
    section.append(make("h2", {}, "Findings"));
    if (!data.findings.length) {
      section.append(make("p", {}, "None."));
      return;
    }
    const rankedOf = (model) => data.findings.filter(({ models }) => model === null || models.includes(model))
      .map((finding, index) => [finding, index + 1]);
    let ranked = rankedOf(null);
    const count = (key) => {
      const counts = new Map();
      for (const finding of data.findings) counts.set(key(finding), (counts.get(key(finding)) || 0) + 1);
      return [["", "all"], ...[...counts].sort((a, b) => b[1] - a[1]).map(([name, n]) => [name, `${name} (${n})`])];
    };
    const list = make("div", { id: "finding-list" });
    let chosen = ranked;
    const pages = pager("finding", () => chosen.length, (from, to) => {
      list.replaceChildren(...chosen.slice(from, to).map(([finding, rank]) => card(finding, rank, rank <= 3)));
    });
    const search = make("input", { id: "search", type: "search", placeholder: "file, layer or words" });
    const update = () => {
      const level = document.getElementById("level").value;
      const rule = document.getElementById("rule").value;
      const words = search.value.toLowerCase();
      chosen = ranked.filter(([finding]) => (!level || finding.level === level)
        && (!rule || text(finding.code) === rule)
        && (!words || [finding.message, finding.place, finding.layer, finding.name, finding.target]
          .some((position) => text(position).toLowerCase().includes(words))));
      pages.show(0);
    };
    let waiting = 0;
    search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 120); });
    section.append(make("div", { class: "tools" },
      choice("level", "Level", count((finding) => finding.level), update),
      choice("rule", "Rule", count((finding) => text(finding.code)), update),
      make("label", { for: "search" }, "Search", search)), list, pages.element);
    if (data.findings_left_out) {
      section.append(make("p", {}, `${data.findings_left_out} findings of lower rank left out: the JSON report has all.`));
    }
    pages.show(0);
    document.addEventListener("model", ({ detail }) => {
      ranked = rankedOf(detail);
      update();
    });
    let was = 0;
    window.addEventListener("beforeprint", () => {
      was = pages.first();
      pages.show(was, PRINTED_AT_MOST);
      for (const element of list.children) {
        element.open = true;
        element.fill(); // the event that would do it comes after the print
      }
    });
    window.addEventListener("afterprint", () => pages.show(was));
  }

  // --- one step: chart, modules, tiles

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let chart = null;

  function roofline(profile) {
    const drawn = profile.ops.filter((op) => op[4] > 0 && op[5] > 0 && op[3] > 0);
    const points = drawn.map((op) => ({ x: op[4] / op[5], y: op[4] / op[3] / 1e6, op }));
    const longest = Math.max(...drawn.map((op) => op[3]), 1e-9);
    for (const point of points) point.r = 2.5 + 18 * Math.sqrt(point.op[3] / longest);
    const peak = Math.max(...profile.roofs.map((roof) => roof.tflops));
    const ridge = (tflops) => 1000 * tflops / profile.dram_gb_per_s;
    const left = Math.min(...points.map((point) => point.x), 0.1) / 2;
    const right = Math.max(...points.map((point) => point.x), ridge(peak) * 4) * 2;
    const line = (label, ends, dash) => ({
      type: "line", label, data: ends, borderColor: colour("roof"), backgroundColor: colour("roof"), borderWidth: 1.5,
      borderDash: dash, pointRadius: 0, pointHitRadius: 0, order: 2, pointStyle: "line",
    });
    const roofs = [
      line(`memory, ${profile.dram_gb_per_s} GB/s`,
        [{ x: left, y: left * profile.dram_gb_per_s / 1000 }, { x: ridge(peak), y: peak }], []),
      ...profile.roofs.map((roof, index) => line(`${roof.name}, ${roof.tflops} TFLOP/s`,
        [{ x: ridge(roof.tflops), y: roof.tflops }, { x: right, y: roof.tflops }], index ? [6, 4] : [])),
    ];
    const limited = data.limiters.map((limiter, index) => ({
      type: "bubble", label: `limited by ${limiter}`, data: points.filter((point) => point.op[6] === index),
      backgroundColor: `${colour(limiter)}99`, borderColor: colour(limiter), borderWidth: 1, order: 1, pointStyle: "circle",
      clip: false,
    }));
    const axis = (title, extra) => ({
      type: "logarithmic", title: { display: true, text: title, color: colour("text") },
      grid: { color: ({ tick }) => (tick && tick.label ? colour("line") : "transparent") },
      ticks: {
        color: colour("dim"), maxRotation: 0,
        callback: (value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? String(Number(value.toPrecision(1))) : ""),
      },
      ...extra,
    });
    const tooltip = ({ raw: { x, y, op } }) => [
      `${text(op[0])}  ${text(op[1])}`,
      `${time(op[3])}, ${percent(100 * op[3] / profile.step_time_us)} of the step`,
      `${significant(y)} TFLOP/s at ${significant(x)} FLOP/byte`,
      `${flops(op[4])}, ${bytes(op[5])} moved`,
      `limited by ${data.limiters[op[6]]}; ${text(op[8])}`,
      ...(text(op[2]) ? [text(op[2])] : []),
    ];
    let under = 0;
    const first = (item, index, items) => {
      under = items.length;
      return item.dataset.type === "bubble" && index < TIPS_AT_MOST;
    };
    const footer = () => (under > TIPS_AT_MOST ? `and ${under - TIPS_AT_MOST} more ops here` : "");
    if (chart) chart.destroy();
    chart = new Chart(document.getElementById("roofline"), {
      data: { datasets: [...limited, ...roofs] },
      options: {
        animation: false, maintainAspectRatio: false,
        scales: { x: axis("FLOP per byte of DRAM traffic", { min: left, max: right }), y: axis("TFLOP/s", {}) },
        plugins: {
          legend: { position: "bottom", labels: { usePointStyle: true, color: colour("text"), boxHeight: 7 } },
          tooltip: { filter: first, callbacks: { title: () => "", label: tooltip, footer } },
        },
      },
    });
    const still = profile.ops.length - drawn.length;
    const notes = [`${drawn.length} ops, all kernels of an op together; the area is its time.`];
    if (still) notes.push(`${still} ops do no arithmetic and are not drawn.`);
    if (profile.ops_left_out) notes.push(`${profile.ops_left_out} ops that take less time are left out.`);
    if (!profile.calibrated) notes.push("Constants of this GPU's relatives stand in for its own.");
    document.getElementById("roofline-notes").textContent = notes.join(" ");
  }

  function tree(modules) {
    const root = { name: "", time: 0, children: new Map() };
    for (const [position, own] of modules) {
      const path = text(position);
      root.time += own;
      let node = root;
      const names = path === "" ? ["(model)"] : path.split(".");
      for (const name of names) {
        if (!node.children.has(name)) node.children.set(name, { name, time: 0, own: 0, children: new Map() });
        node = node.children.get(name);
        node.time += own;
      }
      node.own += own;
    }
    return root;
  }

  function branch(node, whole, open) {
    // The path of modules that only hold one other is shown as one.
    let name = node.name;
    while (node.children.size === 1 && node.own < 0.005 * node.time) {
      node = [...node.children.values()][0];
      name += `.${node.name}`;
    }
    const bar = make("i");
    bar.style.width = `${100 * node.time / whole}%`;
    const row = [make("span", { class: "name" }, name), make("span", { class: "bar" }, bar),
      make("span", { class: "time" }, `${time(node.time)}, ${percent(100 * node.time / whole)}`)];
    if (!node.children.size) return make("div", { class: "leaf" }, ...row);
    const element = make("details", { class: "node" }, make("summary", {}, ...row));
    const fill = () => {
      if (!element.open || element.childElementCount > 1) return;
      const sorted = [...node.children.values()].sort((a, b) => b.time - a.time);
      if (node.own > 0.005 * node.time) {
        sorted.push({ name: "(itself)", time: node.own, own: node.own, children: new Map() });
        sorted.sort((a, b) => b.time - a.time);
      }
      element.append(...sorted.slice(0, CHILDREN_AT_MOST).map((child) => branch(child, whole, false)));
      if (sorted.length > CHILDREN_AT_MOST) {
        element.append(make("div", { class: "leaf" }, `and ${sorted.length - CHILDREN_AT_MOST} more`));
      }
    };
    element.addEventListener("toggle", fill);
    element.open = open;
    fill();
    return element;
  }

  const LEAST_SHARE = 0.003;
  const TINTS = 6;
  const DEEPEST = 8;

  /** The modules as nested bars: below each one those that it holds, as wide as the time that they take. */
  function icicle(profile) {
    const holder = document.getElementById("icicle");
    const draw = (root) => {
      holder.replaceChildren();
      let rows = 0;
      const place = (node, left, depth, tint) => {
        const share = node.time / (root.time || 1);
        if (share < LEAST_SHARE || depth > DEEPEST) return;
        rows = Math.max(rows, depth + 1);
        const shown = `${node.name}, ${time(node.time)}, ${percent(100 * node.time / whole)}`;
        const cell = make("div", { class: `tint-${tint}`, title: shown }, share > 0.03 ? node.name : "");
        cell.style.left = `${100 * left}%`;
        cell.style.width = `${100 * share}%`;
        cell.style.top = `${1.55 * depth}rem`;
        cell.addEventListener("click", () => draw(node === root ? all : node));
        holder.append(cell);
        let at = left;
        const held = [...node.children.values()].sort((a, b) => b.time - a.time);
        // Where one module is nearly everything, colours tell those in it apart.
        const fresh = depth === 0 || (depth < 3 && share > 0.7);
        held.forEach((child, index) => {
          place(child, at, depth + 1, fresh ? index % TINTS : tint);
          at += child.time / (root.time || 1);
        });
      };
      place(root, 0, 0, 0);
      holder.style.height = `${1.55 * rows}rem`;
    };
    const all = { ...tree(profile.modules), name: "the whole step" };
    const whole = all.time || 1;
    draw(all);
  }

  function modules(profile) {
    const root = tree(profile.modules);
    const sorted = [...root.children.values()].sort((a, b) => b.time - a.time).slice(0, CHILDREN_AT_MOST);
    document.getElementById("modules").replaceChildren(
      ...sorted.map((node, index) => branch(node, root.time || 1, index === 0)));
  }

  const COLUMNS = ["op", "layers", "kernel", "M x N x K", "tile", "kernels", "time", "waves", "tile eff.", "wave eff.",
    "of peak"];
  const [COUNT, TIME, WAVES] = [5, 6, 7];
  const isText = (column) => column < COUNT;

  function kernels(profile) {
    const holder = document.getElementById("kernels");
    const rows = [...profile.kernels];
    const show = (row, column) => {
      const value = row[column];
      if (isText(column)) return text(value);
      if (value === null) return "unknown";
      if (column === COUNT) return String(value);
      return column === TIME ? time(value) : column === WAVES ? significant(value) : percent(value);
    };
    const body = make("div");
    const draw = (from, to) => {
      const header = COLUMNS.map((name, column) => {
        const button = make("button", { type: "button", title: `sort by ${name}` }, name);
        button.addEventListener("click", () => sort(column));
        return button;
      });
      body.replaceChildren(table(header,
        rows.slice(from, to).map((row) => COLUMNS.map((name, column) => show(row, column))),
      new Set([5, 6, 7, 8, 9, 10])));
    };
    const pages = pager("kernel", () => rows.length, draw);
    let last = TIME;
    let sign = -1;
    function sort(column) {
      sign = column === last ? -sign : column === TIME || column === COUNT ? -1 : 1;
      last = column;
      rows.sort((a, b) => sign * (isText(column) ? text(a[column]).localeCompare(text(b[column])) : a[column] - b[column]));
      pages.show(0);
    }
    holder.replaceChildren(body, pages.element);
    if (profile.kernels_left_out) {
      holder.append(make("p", { class: "facts" }, `${profile.kernels_left_out} kernels that take less time are left out.`));
    }
    pages.show(0);
  }

  function analysis() {
    const section = document.getElementById("analysis");
    if (!data.models.length) return;
    const several = data.models.length > 1;
    const content = make("div");
    const missing = make("p", {}, data.is_saved
      ? "Charts of operators need the traced model, which a saved report has not: run tclint for them."
      : "There are too many models for charts of each in one page.");
    section.append(make("h2", {}, "Where the step's time goes"), missing, content);
    const byModel = new Map(data.entries.map((one) => [one.model, one.profiles]));
    let model = 0;
    const value = (id) => document.getElementById(id).value;
    const profilesNow = () => byModel.get(model);
    const refill = (id, options) => {
      const select = document.getElementById(id);
      const was = select.value;
      select.replaceChildren(...options.map((option) => new Option(option, option)));
      if (options.includes(was)) select.value = was;
    };
    let current = null;
    const update = () => {
      refill("gpu", [...new Set(profilesNow().map((profile) => profile.gpu))]);
      const ofGpu = profilesNow().filter((profile) => profile.gpu === value("gpu"));
      refill("precision", ofGpu.map((profile) => profile.precision));
      const profile = ofGpu.find((one) => one.precision === value("precision"));
      current = profile;
      const facts = profile.facts.map(([name, shown]) => `${name} ${shown}`);
      if (!profile.is_run) facts.push("not the precision of this run");
      document.getElementById("profile").textContent = facts.join(" · ");
      roofline(profile);
      icicle(profile);
      modules(profile);
      kernels(profile);
    };
    content.append(
      make("div", { class: "tools" }, choice("gpu", "GPU", [], update), choice("precision", "Precision", [], update)),
      make("p", { class: "facts", id: "profile" }),
      make("h3", {}, "Roofline"),
      make("div", { class: "chart" }, make("canvas", { id: "roofline", role: "img", "aria-label": "Roofline chart" })),
      make("p", { class: "facts", id: "roofline-notes" }),
      make("h3", {}, "Time by module"),
      make("div", { id: "icicle", class: "icicle", role: "img",
        "aria-label": "Icicle chart of time by module; the list below it has the same numbers" }),
      make("div", { id: "modules" }),
      make("h3", {}, "Tiles and waves"),
      make("p", { class: "facts" }, "Equal kernels in one row, with their time together. Tile efficiency: useful over computed results. Wave efficiency: waves over waves "
        + "rounded up. Convolutions are tiled as the product that they imply."),
      make("div", { id: "kernels" }));
    // Charts are drawn where they are looked at: of many models, on the page of one.
    const show = (number) => {
      model = number;
      section.hidden = number === null;
      missing.hidden = byModel.has(number);
      content.hidden = !byModel.has(number);
      if (byModel.has(number)) update();
    };
    document.addEventListener("model", ({ detail }) => show(detail));
    show(several ? null : 0);
    const redraw = () => { if (byModel.has(model)) roofline(current); };
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    window.matchMedia("print").addEventListener("change", redraw);
  }

  findings();
  analysis();
})();
