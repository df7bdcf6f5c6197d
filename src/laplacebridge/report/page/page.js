// Turns the tables of risks and costs into controls. Without it the tables stand as they are.
// No "less than" and no ampersand: the page is well-formed XML too.
(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("laplacebridge-data").textContent);
  const percent = (share, digits = 1) => (100 * share).toFixed(digits) + "\u202f%";
  const show = (id) => { byId(id).hidden = false; };

  const rules = data.decisions.rules;
  if (rules.length > 0) {
    const slider = byId("risk-slider");
    const move = () => {
      const rule = rules[Number(slider.value)];
      const shares = { answer: rule.answered, set: rule.named, defer: rule.deferred };
      for (const [name, share] of Object.entries(shares)) {
        document.querySelector("#risk-bar ." + name).style.flexGrow = share.estimate;
        byId("share-" + name).textContent = percent(share.estimate);
      }
      const wrong = rule.wrong === null ? "there were no answers" : percent(rule.wrong.estimate)
        + " of them were wrong (" + percent(rule.wrong.low) + " to " + percent(rule.wrong.high) + ")";
      const words = "At most " + percent(rule.risk) + " wrong answers: " + percent(rule.answered.estimate)
        + " are answered, and " + wrong + ". Promised: at most " + percent(rule.promised) + ".";
      byId("risk-words").textContent = words;
      slider.setAttribute("aria-valuetext", "at most " + percent(rule.risk) + " wrong answers");
      document.querySelectorAll("#risk-table tbody tr").forEach((row, place) => {
        row.classList.toggle("chosen", place === Number(slider.value));
      });
    };
    slider.addEventListener("input", move);
    show("risk-control");
    move();
  }

  const cost = data.cost;
  const price = () => {
    const wrong = Number(byId("cost-wrong").value);
    const defer = Number(byId("cost-defer").value);
    let best = null;
    cost.thresholds.forEach((threshold, place) => {
      const answered = cost.answered_shares[place];
      const total = wrong * cost.wrong_shares[place] + defer * (1 - answered);
      if (best === null ? true : best.total > total) best = { threshold, answered, total };
    });
    byId("cost-words").textContent = best.answered === 0
      ? "Deferring everything costs least: " + best.total.toPrecision(3) + " per case."
      : "Cheapest: answer where 1 − largest probability is at most " + best.threshold.toPrecision(3) + ". That answers "
        + percent(best.answered) + " and costs " + best.total.toPrecision(3) + " per case on these data.";
  };
  byId("cost-wrong").addEventListener("input", price);
  byId("cost-defer").addEventListener("input", price);
  show("cost-control");
  price();
})();
