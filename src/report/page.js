"use strict";
// Brings the page's charts to life. Without Chart.js the SVGs stay; the legend hides series in either.
(() => {
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const root = document.documentElement;
  // The order of PaletteEntry::marker in chart.h.
  const shapes = [["circle", 0], ["rect", 0], ["triangle", 0], ["rectRot", 0], ["triangle", 180], ["crossRot", 0]];
  const longestName = 26, grey = 12;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const shade = (colour, alpha) => colour + Math.round(alpha * 255).toString(16).padStart(2, "0");
  const short = (v) => (Math.abs(v) < 1e-12 ? "0" : Math.abs(v) < 1e7 && Number.isInteger(v) ? String(v) : String(Number(v.toPrecision(6))));
  const digits = (v, n) => Number(v.toPrecision(n));

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

  function marker(series) {
    const kind = series.marker, shape = kind === 11 ? ["cross", 0] : shapes[kind % 6];
    const [first, every] = series.marked;
    return {
      pointStyle: shape[0], pointRotation: shape[1], open: kind > 5, pointBorderWidth: 1.4,
      pointRadius: (item) => (series.overlay || item.dataIndex < first || (item.dataIndex - first) % every ? 0 : 4),
      pointHoverRadius: 6,
    };
  }

  // Two datasets without a legend or hover make a band between the lowest and the highest.
  function datasets(spec) {
    const all = [], bars = spec.kind === "bars";
    spec.series.forEach((series, index) => {
      const common = {series: index, colour: series.colour, hidden: series.overlay};
      if (!bars && series.band) {
        const spread = series.points.filter((p) => p.length === 4);
        const edge = {...common, band: true, pointRadius: 0, pointHitRadius: 0, pointHoverRadius: 0, borderWidth: 0};
        all.push({...edge, data: spread.map((p) => ({x: p[0], y: p[2]})), fill: false});
        all.push({...edge, data: spread.map((p) => ({x: p[0], y: p[3]})), fill: "-1"});
      }
      const spread = (p) => ({value: p[1], low: p[2], high: p[3], whisker: p.length === 4 && (bars || !series.band)});
      all.push({
        ...common, ...marker(series), label: series.label, borderDash: series.dash, borderWidth: bars ? 1 : 2,
        data: series.points.map((p) =>
          (bars ? {x: p[1], y: spec.categories[p[0]], ...spread(p)} : {x: p[0], y: p[1], ...spread(p)})),
        barThickness: 12, grouped: true, categoryPercentage: 0.9, barPercentage: 1,
      });
    });
    return all;
  }

  function paint(chart) {
    for (const data of chart.data.datasets) {
      const colour = css("--c" + data.colour);
      data.borderColor = data.pointBorderColor = colour;
      data.pointBackgroundColor = data.open ? css("--paper") : colour;
      data.backgroundColor = data.band ? shade(colour, 0.16) : data.colour === grey ? shade(colour, 0.25) : colour;
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

  // The y axis of the picture; once lines are hidden or added, what is visible with some room, as range_of in chart.cc.
  function fit(chart, spec) {
    if (spec.kind === "bars") return;
    const scale = chart.options.scales.y;
    const visible = spec.series.map((s, index) => chart.data.datasets.some((d, i) => d.series === index && chart.isDatasetVisible(i)));
    if (spec.series.every((s, index) => visible[index] !== s.overlay)) {
      scale.min = spec.y.least, scale.max = spec.y.most;
      return;
    }
    const ys = spec.series.filter((s, index) => visible[index])
      .flatMap((s) => s.points.filter((p) => spec.fitFrom === null || p[0] >= spec.fitFrom).flatMap((p) => p.slice(1)))
      .filter((y) => !spec.y.log || y > 0);
    if (ys.length === 0) return;
    const least = Math.min(...ys), most = Math.max(...ys);
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
        const fits = x + 5 + ctx.measureText(mark.label).width < area.right;
        ctx.textAlign = fits ? "left" : "right";
        ctx.fillText(mark.label, fits ? x + 5 : x - 5, area.top + 11);
      }
      ctx.restore();
    },
  });

  const eachShown = (chart, visit) => chart.data.datasets.forEach((data, index) => {
    if (chart.isDatasetVisible(index) && !data.band)
      chart.getDatasetMeta(index).data.forEach((element, i) => visit(element, data.data[i]));
  });

  // The spread of bars, and of points that have no band.
  const whiskers = {
    id: "whiskers",
    afterDatasetsDraw(chart) {
      const {ctx, scales} = chart, lying = chart.options.indexAxis === "y";
      ctx.save();
      ctx.strokeStyle = css("--ink");
      ctx.beginPath();
      eachShown(chart, (element, point) => {
        if (!point.whisker) return;
        const [low, high] = [point.low, point.high].map((v) => (lying ? scales.x : scales.y).getPixelForValue(v));
        const line = (x, y, dx, dy) => lying ? (ctx.moveTo(y, x), ctx.lineTo(y + dy, x + dx)) : (ctx.moveTo(x, y), ctx.lineTo(x + dx, y + dy));
        const at = lying ? element.y : element.x;
        line(at - 3, low, 6, 0), line(at, low, 0, high - low), line(at - 3, high, 6, 0);
      });
      ctx.stroke();
      ctx.restore();
    },
  };

  // Each bar's number behind it.
  const values = {
    id: "values",
    afterDatasetsDraw(chart) {
      const {ctx, scales} = chart;
      ctx.save();
      ctx.fillStyle = css("--soft");
      ctx.font = "11px system-ui, sans-serif";
      ctx.textBaseline = "middle";
      eachShown(chart, (bar, point) =>
        ctx.fillText(point.value.toFixed(2), scales.x.getPixelForValue(Math.max(0, point.whisker ? point.high : point.value)) + 5, bar.y + 1));
      ctx.restore();
    },
  };

  const tooltipLabel = (spec) => (item) => {
    const {label, data, series} = item.dataset, point = data[item.dataIndex];
    const spread = point.low === undefined ? "" : " (" + digits(point.low, 4) + " to " + digits(point.high, 4) + ", " + spec.series[series].spread + ")";
    return " " + label + ": " + digits(point.value, 4) + spread;
  };

  function draw(figure, spec) {
    const canvas = figure.querySelector("canvas");
    figure.classList.add("live");
    const bars = spec.kind === "bars";
    const name = (value) => {
      const text = spec.categories[value];
      return text.length > longestName ? text.slice(0, longestName - 1) + "…" : text;
    };
    const across = bars ? axis(spec.y, {min: spec.y.least, max: spec.y.most}) : axis(spec.x, {min: spec.x.least, max: spec.x.most});
    const up = bars ? {type: "category", grid: {display: false}, ticks: {autoSkip: false, callback: name}, title: {}} : axis(spec.y);
    const chart = new Chart(canvas, {
      type: bars ? "bar" : "line",
      data: {labels: bars ? spec.categories : undefined, datasets: datasets(spec)},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, spanGaps: true, indexAxis: bars ? "y" : "x",
        layout: {padding: {right: bars ? 44 : 8}},
        interaction: {mode: bars ? "index" : "nearest", axis: bars ? "y" : "x", intersect: false},
        scales: {x: across, y: up},
        plugins: {
          legend: {display: false},
          tooltip: {
            borderWidth: 1, filter: (item) => !item.dataset.band, usePointStyle: true,
            itemSort: (a, b) => b.raw.value - a.raw.value,
            callbacks: {
              title: (items) => (items.length === 0 ? "" : bars ? items[0].label : spec.x.label + ": " + short(items[0].parsed.x)),
              label: tooltipLabel(spec),
            },
          },
        },
      },
      plugins: bars ? [whiskers, values] : [marks(spec), whiskers],
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

  // A table that is wider than the page says that it scrolls; one that is not is no stop for the keyboard.
  const tables = new ResizeObserver((entries) => {
    for (const {target} of entries) {
      const wide = target.scrollWidth > target.clientWidth + 1;
      target.parentElement.classList.toggle("wide", wide);
      if (wide) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const scroll of document.querySelectorAll(".scroll")) tables.observe(scroll);

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => charts.forEach(paint);
  dark.addEventListener("change", repaint);
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    repaint();
  });
})();
