"use strict";
// Brings the page's charts to life. Without Chart.js the SVGs stay; the legend hides series in either.
(() => {
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const root = document.documentElement;
  const dashes = [[], [7, 5], [2, 4], [9, 4, 2, 4]];
  const markers = ["circle", "rect", "triangle", "rectRot"];
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const shade = (colour, alpha) => colour + Math.round(alpha * 255).toString(16).padStart(2, "0");
  const short = (v) => (Math.abs(v) < 1e-12 ? "0" : String(Number(v.toPrecision(6))));

  // The rule of ticks_between in chart.cc, for what is visible at the moment; a test compares the two.
  function ticksBetween(least, most, log) {
    const ticks = [];
    if (!(most > least)) return [least];
    if (log && most / least > 2.5) {
      const decades = Math.log10(most / least);
      for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); ++power)
        for (const digit of decades > 4 ? [1] : decades > 1.3 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7]) {
          const tick = digit * 10 ** power;
          if (tick >= least && tick <= most) ticks.push(tick);
        }
      return ticks;
    }
    const rough = (most - least) / 7;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((digit) => digit * power >= rough);
    const first = Math.ceil(least / step);
    for (let k = 0; k <= 7; ++k)
      if ((first + k) * step <= most) ticks.push((first + k) * step);
    return ticks;
  }

  function axis(spec, other) {
    const options = {
      type: spec.log ? "logarithmic" : "linear",
      title: {display: spec.label !== "", text: spec.label},
      grid: {}, ticks: {callback: short, autoSkipPadding: 8, maxRotation: 0},
      afterBuildTicks(scale) {
        const ticks = spec.ticks.length ? spec.ticks : ticksBetween(scale.min, scale.max, spec.log);
        scale.ticks = ticks.filter((t) => t >= scale.min * 0.999 - 1e-12 && t <= scale.max * 1.001).map((value) => ({value}));
      },
    };
    return Object.assign(options, other);
  }

  // Two datasets without a legend or hover make a band between the lowest and the highest seed.
  function datasets(spec) {
    const all = [];
    spec.series.forEach((series, index) => {
      const common = {series: index, colour: series.colour, hidden: series.overlay};
      const spread = series.points.filter((p) => p.length === 4);
      if (spec.kind === "lines" && spread.length > 1) {
        const edge = {...common, band: true, pointRadius: 0, pointHitRadius: 0, pointHoverRadius: 0, borderWidth: 0};
        all.push({...edge, data: spread.map((p) => ({x: p[0], y: p[2]})), fill: false});
        all.push({...edge, data: spread.map((p) => ({x: p[0], y: p[3]})), fill: "-1"});
      }
      const bars = spec.kind === "bars";
      all.push({
        ...common, label: series.label,
        data: series.points.map((p) => ({x: bars ? spec.categories[p[0]] : p[0], y: p[1], low: p[2], high: p[3]})),
        borderDash: dashes[series.dash % 4], borderWidth: bars ? 0 : 2.2, pointStyle: markers[series.colour % 4],
        pointRadius: series.overlay || series.points.length > 40 ? 0 : 3.5, pointHoverRadius: 6,
        categoryPercentage: 0.76, barPercentage: 0.92,
      });
    });
    return all;
  }

  function paint(chart) {
    for (const data of chart.data.datasets) {
      const colour = css("--c" + data.colour);
      data.borderColor = data.pointBackgroundColor = data.pointBorderColor = colour;
      data.backgroundColor = data.band ? shade(colour, 0.18) : colour;
    }
    for (const scale of Object.values(chart.options.scales)) {
      scale.grid.color = css("--faint");
      scale.ticks.color = css("--soft");
      scale.title.color = css("--ink");
    }
    Object.assign(chart.options.plugins.tooltip, {
      backgroundColor: css("--panel"), titleColor: css("--ink"), bodyColor: css("--ink"), borderColor: css("--soft"),
    });
    chart.update();
  }

  // The y axis holds what is visible, with some room: the same rule as range_of in chart.cc.
  function fit(chart, spec) {
    if (spec.kind === "bars") return;
    const hidden = new Set(chart.data.datasets.filter((d, i) => !chart.isDatasetVisible(i)).map((d) => d.series));
    const ys = spec.series.filter((s, index) => !hidden.has(index))
      .flatMap((s) => s.points.flatMap((p) => p.slice(1))).filter((y) => y !== null && (!spec.y.log || y > 0));
    if (ys.length === 0) return;
    const least = Math.min(...ys), most = Math.max(...ys);
    const scale = chart.options.scales.y;
    if (spec.y.log) {
      const factor = most > least ? (most / least) ** 0.06 : 1.1;
      scale.min = least / factor, scale.max = most * factor;
    } else {
      const room = most > least ? 0.06 * (most - least) : Math.max(1e-9, 0.1 * Math.abs(most));
      scale.min = least - room, scale.max = most + room;
    }
  }

  const marks = (spec) => ({
    id: "marks",
    afterDatasetsDraw(chart) {
      const {ctx, chartArea: area, scales} = chart;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = css("--soft");
      ctx.font = "12px system-ui, sans-serif";
      for (const mark of spec.marks) {
        const x = scales.x.getPixelForValue(mark.x);
        ctx.setLineDash([4, 4]);
        ctx.beginPath();
        ctx.moveTo(x, area.top);
        ctx.lineTo(x, area.bottom);
        ctx.stroke();
        ctx.fillText(mark.label, x + 5, area.top + 11);
      }
      ctx.restore();
    },
  });

  // Each bar's number above it.
  const values = {
    id: "values",
    afterDatasetsDraw(chart) {
      const {ctx} = chart;
      ctx.save();
      ctx.fillStyle = css("--soft");
      ctx.font = "11px system-ui, sans-serif";
      ctx.textAlign = "center";
      chart.data.datasets.forEach((data, index) => {
        if (!chart.isDatasetVisible(index)) return;
        chart.getDatasetMeta(index).data.forEach((bar, i) => ctx.fillText(data.data[i].y.toFixed(2), bar.x, bar.y - 4));
      });
      ctx.restore();
    },
  };

  function tooltipLabel(item) {
    const {label, data} = item.dataset;
    const point = data[item.dataIndex];
    const spread = point.low === undefined || point.low === null ? "" :
      " (" + Number(point.low.toPrecision(4)) + " to " + Number(point.high.toPrecision(4)) + " over seeds)";
    return " " + label + ": " + Number(point.y.toPrecision(4)) + spread;
  }

  function draw(figure, spec) {
    const canvas = figure.querySelector("canvas");
    figure.classList.add("live");
    const bars = spec.kind === "bars";
    const xs = spec.series.filter((s) => !s.overlay).flatMap((s) => s.points.map((p) => p[0])).concat(spec.marks.map((m) => m.x));
    const least = Math.min(...xs), most = Math.max(...xs), room = spec.x.log ? (most / least) ** 0.03 : 0.03 * (most - least);
    const xRange = spec.x.log ? {min: least / room, max: most * room} : {min: least - room, max: most + room};
    const chart = new Chart(canvas, {
      type: bars ? "bar" : "line",
      data: {labels: bars ? spec.categories : undefined, datasets: datasets(spec)},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, spanGaps: true,
        interaction: {mode: bars ? "index" : "nearest", axis: "x", intersect: false},
        scales: {
          x: bars ? {type: "category", grid: {display: false}, ticks: {}, title: {}} : axis(spec.x, xRange),
          y: axis(spec.y, bars ? {beginAtZero: true, grace: "8%"} : {}),
        },
        plugins: {
          legend: {display: false},
          tooltip: {
            borderWidth: 1, filter: (item) => !item.dataset.band, usePointStyle: true,
            itemSort: (a, b) => b.parsed.y - a.parsed.y,
            callbacks: {
              title: (items) => (items.length === 0 ? "" : bars ? items[0].label : spec.x.label + ": " + short(items[0].parsed.x)),
              label: tooltipLabel,
            },
          },
        },
      },
      plugins: bars ? [values] : [marks(spec)],
    });
    fit(chart, spec);
    paint(chart);
    return chart;
  }

  function show(figure, spec, chart, series, visible) {
    figure.querySelector('.legend button[data-series="' + series + '"]').setAttribute("aria-pressed", String(visible));
    figure.querySelector('svg g[data-series="' + series + '"]').classList.toggle("off", !visible);
    if (!chart) return;
    chart.data.datasets.forEach((data, index) => {
      if (data.series === series) chart.setDatasetVisibility(index, visible);
    });
    fit(chart, spec);
    chart.update();
  }

  const charts = [];
  for (const spec of specs) {
    const figure = document.getElementById("chart-" + spec.id);
    const chart = window.Chart ? draw(figure, spec) : null;
    if (chart) charts.push(chart);
    for (const button of figure.querySelectorAll(".legend button"))
      button.addEventListener("click", () =>
        show(figure, spec, chart, Number(button.dataset.series), button.getAttribute("aria-pressed") !== "true"));
    figure.addEventListener("longshot-overlay", (event) =>
      spec.series.forEach((series, index) => series.overlay && show(figure, spec, chart, index, event.detail)));
  }

  const overlay = document.getElementById("overlay");
  if (overlay)
    overlay.addEventListener("click", () => {
      const visible = overlay.getAttribute("aria-pressed") !== "true";
      overlay.setAttribute("aria-pressed", String(visible));
      overlay.textContent = visible ? "Hide the paper's curves" : "Show the paper's curves";
      for (const figure of document.querySelectorAll("figure.chart"))
        figure.dispatchEvent(new CustomEvent("longshot-overlay", {detail: visible}));
    });

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => charts.forEach(paint);
  dark.addEventListener("change", repaint);
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    repaint();
  });
})();
