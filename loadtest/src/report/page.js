"use strict";
(() => {
  const run = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const SVG = "http://www.w3.org/2000/svg";

  // Elements. Text is inserted as text: data is never parsed as markup.
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
    return made;
  }
  function svg(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Numbers for people: three digits, or all digits of an integer, with thin spaces.
  function number(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const digits = size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
    const [whole, part] = value.toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
    return part === undefined || /^0+$/.test(part) ? grouped : grouped + "." + part;
  }
  const ms = (value) => value === null || value === undefined ? "–"
    : value >= 10000 ? number(value / 1000) + " s" : number(value) + " ms";
  const bytes = (value) => value === null || value === undefined ? "–"
    : value >= 1e9 ? number(value / 1e9) + " GB" : value >= 1e6 ? number(value / 1e6) + " MB"
    : value >= 1e3 ? number(value / 1e3) + " KB" : number(value) + " B";

  // Scales map values to positions, and choose the values for grid lines.
  function linear(low, high, from, to) {
    const span = high - low || 1;
    const rough = span / 5;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
    const ticks = [];
    for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-6; index++) {
      ticks.push(Number((index * step).toPrecision(12)));
    }
    const at = (value) => from + (value - low) / span * (to - from);
    return { at, ticks, back: (place) => low + (place - from) / (to - from) * span };
  }
  function logarithmic(low, high, from, to) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const all = [];
    for (let power = first; power <= last; power++) {
      for (const factor of [1, 2, 5]) all.push(Number((factor * Math.pow(10, power)).toPrecision(6)));
    }
    const bottom = all.filter((tick) => tick <= low * 1.0001).pop() || low;
    const top = all.find((tick) => tick >= high * 0.9999 && tick > bottom) || high * 2;
    const within = all.filter((tick) => tick >= bottom && tick <= top);
    const decades = within.filter((tick) => Math.abs(Math.log10(tick) % 1) < 1e-9);
    const ticks = within.length <= 8 ? within : decades.length > 1 ? decades : within;
    const span = Math.log10(top) - Math.log10(bottom);
    const at = (value) => from + (Math.log10(Math.max(value, bottom)) - Math.log10(bottom)) / span * (to - from);
    return { at, ticks, back: (place) => Math.pow(10, Math.log10(bottom) + (place - from) / (to - from) * span) };
  }

  // A plot of lines over a common x. `lines`: name, color, points [[x, y or null]], and whether to fill
  // below.
  function plot(options) {
    const { lines, label, describe, formatX, formatY, xTicks } = options;
    // On a narrow screen a wide plot would have tiny letters.
    const wide = options.wide && window.innerWidth > 700 ? 1040 : 500;
    const crowded = (options.marks || []).length > 0;
    const [height, left, right, top, bottom] = [options.wide ? 270 : 250, 58, 14, crowded ? 36 : 14, 34];
    const all = lines.flatMap((line) => line.points).filter((point) => point[1] !== null && isFinite(point[1]));
    if (all.length === 0) return el("p", { class: "soft" }, "Nothing was measured.");
    const [xs, ys] = [all.map((point) => point[0]), all.map((point) => point[1])];
    const least = (values) => values.reduce((a, b) => Math.min(a, b));
    const most = (values) => values.reduce((a, b) => Math.max(a, b));
    const positive = ys.filter((y) => y > 0);
    const x = linear(options.fromX ?? least(xs), options.toX ?? most(xs), left, wide - right);
    const y = options.log && positive.length > 0
      ? logarithmic(least(positive), most(positive), height - bottom, top)
      : linear(0, Math.max(most(ys) * 1.06, options.atLeast || 1e-9), height - bottom, top);
    const root = svg("svg", { viewBox: `0 0 ${wide} ${height}`, role: "img", "aria-label": label });
    for (const tick of y.ticks) {
      const place = y.at(tick);
      root.append(svg("line", { class: "grid", x1: left, x2: wide - right, y1: place, y2: place }));
      root.append(svg("text", { x: left - 8, y: place + 4, "text-anchor": "end" }, formatY(tick)));
    }
    for (const [value, text] of xTicks || x.ticks.map((tick) => [tick, formatX(tick)])) {
      root.append(svg("text", { x: x.at(value), y: height - bottom + 18, "text-anchor": "middle" }, text));
    }
    root.append(svg("line", { class: "axis", x1: left, x2: wide - right, y1: height - bottom, y2: height - bottom }));
    // Names of phases have two rows, so that a short phase keeps its name.
    const free = [left, left];
    for (const [at, name] of options.marks || []) {
      const place = x.at(at);
      root.append(svg("line", { class: "phase", x1: place, x2: place, y1: top - 6, y2: height - bottom }));
      const row = free.findIndex((taken) => place >= taken);
      if (row >= 0) {
        root.append(svg("text", { x: place + 4, y: top - 8 - row * 15 }, name));
        free[row] = place + 14 + name.length * 7;
      }
    }
    for (const line of lines) draw(root, line, x, y, height - bottom);
    const box = el("div", { class: "plot" }, root);
    if (options.tips !== false) follow(box, root, { x, lines, wide, height, left, right, top, bottom, describe });
    const legend = el("div", { class: "legend" }, lines.map((line) =>
      el("span", {}, el("i", { style: `background:${line.color}` }), line.name)));
    return el("div", {}, box, lines.length > 1 ? legend : null);
  }

  // A line breaks at gaps in the data; an isolated point is a dot.
  function draw(root, line, x, y, floor) {
    let piece = [];
    const end = () => {
      if (piece.length > 1) {
        const path = piece.map(([a, b], index) => `${index ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
        if (line.fill) {
          const closed = `${path}L${piece[piece.length - 1][0].toFixed(1)} ${floor}L${piece[0][0].toFixed(1)} ${floor}Z`;
          root.append(svg("path", { d: closed, fill: line.color, opacity: .12 }));
        }
        root.append(svg("path", { d: path, fill: "none", stroke: line.color, "stroke-width": 1.8, "stroke-linejoin": "round" }));
      } else if (piece.length === 1) {
        root.append(svg("circle", { cx: piece[0][0], cy: piece[0][1], r: 2, fill: line.color }));
      }
      piece = [];
    };
    for (const [a, b] of line.points) {
      if (b === null || !isFinite(b)) end(); else piece.push([x.at(a), y.at(b)]);
    }
    end();
  }

  // The values below the pointer.
  function follow(box, root, plot) {
    const cross = svg("line", { class: "cross", y1: plot.top, y2: plot.height - plot.bottom, visibility: "hidden" });
    root.append(cross);
    const tip = el("div", { class: "tip", hidden: "" });
    box.append(tip);
    const points = plot.lines.reduce((a, b) => b.points.length > a.length ? b.points : a, []);
    box.addEventListener("pointermove", (event) => {
      const frame = box.getBoundingClientRect();
      const place = (event.clientX - frame.left) / frame.width * plot.wide;
      const value = plot.x.back(Math.min(Math.max(place, plot.left), plot.wide - plot.right));
      let nearest = 0;
      points.forEach((point, index) => {
        if (Math.abs(point[0] - value) < Math.abs(points[nearest][0] - value)) nearest = index;
      });
      const at = plot.x.at(points[nearest][0]);
      cross.setAttribute("x1", at);
      cross.setAttribute("x2", at);
      cross.setAttribute("visibility", "visible");
      tip.replaceChildren(...plot.describe(nearest).map((text) => el("div", {}, text)));
      tip.hidden = false;
      const pixels = at / plot.wide * frame.width;
      const beyond = pixels + tip.offsetWidth + 16 > frame.width;
      tip.style.left = `${beyond ? Math.max(pixels - tip.offsetWidth - 10, 0) : pixels + 10}px`;
      tip.style.top = "24px";
    });
    box.addEventListener("pointerleave", () => {
      tip.hidden = true;
      cross.setAttribute("visibility", "hidden");
    });
  }

  const card = (title, about, ...content) =>
    el("section", { class: "card" }, el("h2", {}, title), el("p", { class: "soft" }, about), ...content);
  const [A, B, C] = ["var(--a)", "var(--b)", "var(--c)"];
  const series = run.series;
  const marks = run.phases.map((phase) => [phase.at_s, phase.name]);
  const seconds = (value) => number(value) + " s";
  const overTime = (label, lines, options) => plot({
    wide: options.wide, label, log: options.log, marks: options.wide ? marks : [], atLeast: options.atLeast,
    lines: lines.map(([name, color, of, fill]) => ({ name, color, fill, points: series.map((at) => [at.at_s, of(at)]) })),
    formatX: seconds, formatY: options.format, fromX: 0, toX: series[series.length - 1].at_s,
    describe: (index) => [seconds(series[index].at_s), ...lines.map(([name, , of]) => `${name}: ${options.format(of(series[index]))}`)],
  });

  function heading() {
    const button = el("button", { type: "button" }, "Dark or light");
    button.addEventListener("click", () => {
      const shown = document.documentElement.dataset.theme
        || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
      document.documentElement.dataset.theme = shown === "dark" ? "light" : "dark";
    });
    const shared = run.clients_per_connection > 1 ? `, ${run.clients_per_connection} on a connection` : "";
    const set = run.resources > 0 ? ` · ${number(run.resources)} resources, ${bytes(run.resource_bytes)} each` : "";
    const variant = run.mode === "delta" ? "delta" : "SotW";
    document.title = `${run.scenario} · ${run.name} · sluice-load`;
    return [
      el("header", {}, el("h1", {}, `${run.scenario}: ${number(run.clients)} clients of ${run.name}`), button),
      el("p", { class: "soft" }, `${variant} over ${run.services}${shared}: ${run.subscriptions.join(", ")}${set}`),
    ];
  }

  function tiles() {
    const entries = [
      ["p50 of updates", run.update_ms && ms(run.update_ms.p50)],
      ["p99 of updates", run.update_ms && ms(run.update_ms.p99)],
      ["worst update", run.update_ms && ms(run.update_ms.max)],
      ["last client, median change", run.last_client_ms && ms(run.last_client_ms.p50)],
      ["p99 of first answers", run.first_answer_ms && ms(run.first_answer_ms.p99)],
      ["recovery", run.recovery_ms !== null && ms(run.recovery_ms)],
      ["p99 of reconnects", run.reconnect_ms && ms(run.reconnect_ms.p99)],
      ["p99 of new names", run.subscribe_ms && ms(run.subscribe_ms.p99)],
      ["server CPU per update", run.server_cpu_us_per_update !== null && number(run.server_cpu_us_per_update) + " µs"],
      ["server memory per client", run.rss_bytes_per_client !== null && bytes(run.rss_bytes_per_client)],
      ["updates that clients got", number(run.updates)],
      ["connected at the end", `${number(run.connected)} of ${number(run.clients)}`],
    ];
    return el("div", { class: "tiles" }, entries.filter((entry) => entry[1]).map(([name, value]) =>
      el("div", { class: "tile" }, el("b", {}, value), el("span", {}, name))));
  }

  function notes() {
    const said = run.error_messages.map((text) => el("li", {}, text));
    if (run.tool_was_bottleneck) {
      said.unshift(el("li", {}, "The tool was the bottleneck itself: while updates were under way its clients' thread was "
        + `${number(run.client_thread_busy * 100)} % busy (${number(run.client_thread_waiting * 100)} % without a CPU to be busy on), its control plane's ${number(run.control_plane_busy * 100)} %. `
        + "The latencies are the tool's as much as the server's."));
    }
    if (said.length === 0) return null;
    const title = run.errors > 0 ? "What went wrong" : "Beware";
    return el("section", { class: "card note" }, el("h2", {}, title), el("ul", {}, said));
  }

  function assertions() {
    if (run.assertions.length === 0) return null;
    const rows = run.assertions.map((verdict) => el("tr", {}, el("td", {}, el("code", {}, verdict.assertion)),
      el("td", {}, verdict.found), el("td", { class: verdict.holds ? "good" : "bad" }, verdict.holds ? "holds" : "fails")));
    return el("section", { class: "card" }, el("h2", {}, "Assertions"), el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["asserted", "found", ""].map((head) => el("th", {}, head)))), el("tbody", {}, rows))));
  }

  // Percentiles are spread so that each further nine has the same width.
  function distribution() {
    const nines = (percentile) => -Math.log10(Math.max(1 - percentile / 100, 1e-9));
    const points = run.distribution.filter((point, index) =>
      point.percentile < 100 || index + 1 === run.distribution.length);
    const last = Math.max(2, nines(Math.max(0, ...points.filter((point) => point.percentile < 100)
      .map((point) => point.percentile))));
    const place = (percentile) => Math.min(nines(percentile), last);
    const ticks = [[0, "0"], [50, "50 %"], [90, "90 %"], [99, "99 %"], [99.9, "99.9 %"], [99.99, "99.99 %"], [99.999, "99.999 %"]];
    return plot({
      label: "latency by percentile", log: true, formatY: ms, formatX: String, fromX: 0, toX: last,
      xTicks: ticks.filter(([percentile]) => nines(percentile) <= last).map(([percentile, text]) => [nines(percentile), text]),
      lines: [{ name: "update", color: A, fill: true, points: points.map((point) => [place(point.percentile), point.ms]) }],
      describe: (index) => [`${points[index].percentile.toFixed(3)} % of updates`, `within ${ms(points[index].ms)}`],
    });
  }

  function spread() {
    const { mean_ms: means, max_ms: maxima } = run.spread;
    const share = (index) => means.length < 2 ? 0 : index / (means.length - 1) * 100;
    const line = (name, color, values) => ({ name, color, points: values.map((value, index) => [share(index), value]) });
    return plot({
      label: "mean and worst latency of each client", log: true, formatY: ms, formatX: (value) => number(value) + " %",
      lines: [line("client's mean", A, means), line("client's worst", B, maxima)],
      describe: (index) => [`${number(share(index))} % of clients`, `mean within ${ms(means[index])}`, `worst within ${ms(maxima[index])}`],
    });
  }

  function phases() {
    const with_updates = run.phases.filter((phase) => phase.update_ms);
    if (with_updates.length < 2) return null;
    const head = ["phase", "updates", "p50", "p90", "p99", "p99.9", "worst"];
    const rows = with_updates.map(({ name, update_ms: of }) => el("tr", {}, [name, number(of.count), ms(of.p50), ms(of.p90),
      ms(of.p99), ms(of.p999), ms(of.max)].map((text) => el("td", {}, text))));
    const ratio = run.p99_ratio === null ? "" : ` The last phase's p99 is ${number(run.p99_ratio)} times the first's.`;
    return card("Phases", "A change belongs to the phase in which it was to happen." + ratio, el("div", { class: "scroll" },
      el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", {}, text)))), el("tbody", {}, rows))));
  }

  function details() {
    const of = (values) => values && [values.p50, values.p90, values.p99, values.max].map(ms).join(" / ");
    const cpu = (value) => value === null ? null : number(value) + " µs";
    const rows = [
      ["updates: p50 / p90 / p99 / worst", of(run.update_ms)],
      ["last client of a change", of(run.last_client_ms)],
      ["first answers", of(run.first_answer_ms)],
      ["reconnects", of(run.reconnect_ms)],
      ["reconnects that the server asked for", run.drained ? number(run.drained) : null],
      ["new names", of(run.subscribe_ms)],
      ["misbehaving clients", of(run.odd_update_ms)],
      ["misbehaving clients that the server disconnected", run.odd_disconnected ? number(run.odd_disconnected) : null],
      ["answers after more than 1 s (a lost SYN?)", number(run.slow_connects)],
      ["changes, and how late the tool was at most", `${number(run.changes)}, ${ms(run.change_late_ms)}`],
      ["bytes per client and update", run.bytes_per_update === null ? null : bytes(run.bytes_per_update)],
      ["server CPU per update / per connect", run.server_cpu_us_per_update === null ? null
        : `${cpu(run.server_cpu_us_per_update)} / ${cpu(run.server_cpu_us_per_connect) || "–"}`],
      ["clients' CPU per update / whole tool's", run.client_cpu_us_per_update === null ? null
        : `${cpu(run.client_cpu_us_per_update)} / ${cpu(run.tool_cpu_us_per_update)}`],
      ["clients' thread busy while updates were under way", number(run.client_thread_busy * 100) + " %"],
      ["server memory: one client / all / after the changes", run.rss.one_client === null ? null
        : [run.rss.one_client, run.rss.all_clients, run.rss.after_changes].map(bytes).join(" / ")],
      ["server memory per further client / after the changes", run.rss_bytes_per_client === null ? null
        : `${bytes(run.rss_bytes_per_client)} / ${bytes(run.rss_bytes_per_client_after_changes)}`],
      ["server memory per client that has left", run.rss_bytes_per_departed_client === null ? null
        : bytes(run.rss_bytes_per_departed_client)],
    ];
    const shown = rows.filter((row) => row[1]).map((row) => el("tr", {}, row.map((text) => el("td", {}, text))));
    const here = run.circumstances;
    return card("All figures", "Latencies run from when a change was to happen at the control plane to the client's having the last byte of the answer that holds it.",
      el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, shown))),
      el("p", { class: "soft", style: "margin-top:12px" }, `${here.tool} · ${here.machine}`), el("code", {}, here.command));
  }

  function server() {
    if (!series.some((at) => at.server_rss_bytes !== null)) return null;
    return el("div", { class: "pair" },
      card("Server CPU", "100 % is one core", overTime("server CPU", [["CPU", A, (at) => at.server_cpu_percent, true]],
        { format: (value) => number(value) + " %", atLeast: 10 })),
      card("Server memory", "Resident", overTime("server memory", [["RSS", A, (at) => at.server_rss_bytes, true]], { format: bytes })));
  }

  page.append(...[
    ...heading(), tiles(), notes(), assertions(),
    card("Update latency over time", "Of the updates that arrived in each interval", overTime("update latency over time",
      [["p50", A, (at) => at.p50_ms], ["p99", B, (at) => at.p99_ms], ["worst", C, (at) => at.max_ms]], { wide: true, log: true, format: ms })),
    el("div", { class: "pair" },
      card("Latency distribution", "Each further nine has the same room", distribution()),
      card("Spread over clients", "From the luckiest client to the unluckiest", spread())),
    phases(),
    el("div", { class: "pair" },
      card("Updates and messages", "A second, over all clients; a message may hold several updates, or none", overTime("updates and messages a second",
        [["updates", A, (at) => at.updates_per_s, true], ["messages", B, (at) => at.responses_per_s]], { format: number })),
      card("Connected clients", "With a complete answer", overTime("connected clients",
        [["connected", A, (at) => at.connected, true], ["lost so far", B, (at) => at.errors]], { format: number }))),
    server(),
    card("The tool itself", "How busy the thread is that is all clients; near 100 % the figures are the tool's own", overTime("clients' thread",
      [["busy", A, (at) => at.tool_busy_percent, true]], { wide: true, atLeast: 100, format: (value) => number(value) + " %" })),
    details(),
  ].filter((part) => part !== null));
})();
