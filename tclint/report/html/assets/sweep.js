"use strict";
// The points of a sweep: parameters against time, and the front that no point beats.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const section = document.getElementById("sweep");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const significant = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const milliseconds = (us) => `${significant(us / 1000)} ms`;

  const title = document.createElement("h2");
  title.textContent = "Parameters against time";
  section.append(title);
  if (!data.kinds.length) {
    section.append("No point was priced.");
    return;
  }
  const select = Object.assign(document.createElement("select"), { id: "kind" });
  select.append(...data.kinds.map((kind, index) => new Option(kind.name, index)));
  const label = document.createElement("label");
  label.htmlFor = "kind";
  label.append("GPU and precision", select);
  const tools = document.createElement("div");
  tools.className = "tools";
  tools.append(label);
  const holder = document.createElement("div");
  holder.className = "chart";
  const canvas = Object.assign(document.createElement("canvas"), { id: "scatter" });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Scatter chart of parameters against time; the table below has its numbers");
  holder.append(canvas);
  section.append(tools, holder);

  let chart = null;
  function draw() {
    const kind = data.kinds[Number(select.value)];
    const points = kind.points.map(([position, parameters, us, ready, onFront]) =>
      ({ x: parameters, y: us / 1000, ready, onFront, name: data.points[position] }));
    const front = points.filter((point) => point.onFront).sort((a, b) => a.x - b.x);
    const spread = (values) => Math.max(...values) > 20 * Math.min(...values);
    const axis = (text, values) => ({
      type: spread(values) ? "logarithmic" : "linear",
      title: { display: true, text, color: colour("text") }, grid: { color: colour("line") },
      ticks: { color: colour("dim"), maxTicksLimit: 9, callback: (value) => short.format(value) },
    });
    if (chart) chart.destroy();
    chart = new Chart(canvas, {
      type: "scatter",
      data: {
        datasets: [
          { label: "on the Pareto front", data: front, showLine: true, borderColor: colour("accent"),
            backgroundColor: colour("accent"), pointRadius: 4, borderWidth: 1.5 },
          { label: "other points", data: points.filter((point) => !point.onFront), backgroundColor: `${colour("memory")}88`,
            pointRadius: points.length > 500 ? 2 : 3.5 },
        ],
      },
      options: {
        animation: false, maintainAspectRatio: false,
        scales: {
          x: axis("parameters", points.map((point) => point.x)),
          y: axis(data.is_per_sample ? "ms per sample" : "ms per step", points.map((point) => point.y)),
        },
        plugins: {
          legend: { position: "bottom", labels: { usePointStyle: true, color: colour("text"), boxHeight: 7 } },
          tooltip: { callbacks: { label: ({ raw }) => [raw.name,
            `${raw.x.toLocaleString("en")} parameters, ${milliseconds(1000 * raw.y)}`,
            ...(raw.ready === null ? [] : [`${raw.ready} % ready`])] } },
        },
      },
    });
  }
  select.addEventListener("change", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.matchMedia("print").addEventListener("change", draw);
  draw();
})();
