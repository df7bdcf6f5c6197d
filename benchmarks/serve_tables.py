"""What docs/benchmarks.md shows of servers: from stored results to Markdown."""

from benchmark_tables import Results, markdown

_FIGURES = ("requests/s", "p50, ms", "p99, ms", "p99 / p50", "answers / this", "failed")


def serving(found: Results) -> str:
    """Servers under load, and beside bad clients; the goals are among the targets."""
    if "serve" not in found:
        return "Not measured yet: `python benchmarks/bench_serve.py`, then render this page."
    stored, parts = found["serve"], []
    for model in dict.fromkeys(row["model"] for row in stored["load"]):
        rows = [row for row in stored["load"] if row["model"] == model]
        cells = [[row["way"], row["clients"], *(row[name] for name in _FIGURES)] for row in rows]
        parts.append(f"{model.upper()}:\n")
        parts.append(markdown(["way of serving", "clients", *_FIGURES], cells) + "\n")
    if bad := stored["bad clients"]:
        names = [name for name in bad[0] if name != "model"]
        parts.append("Malformed requests beside good ones, at a tenth of their rate:\n")
        cells = [[row["model"].upper(), *(row[name] for name in names)] for row in bad]
        parts.append(markdown(["", *names], cells) + "\n")
    verdicts = [[line[name] for name in ("what", "target", "measured", "met")]
                for line in stored["targets"]]  # fmt: skip
    parts.append("What was wanted of them:\n")
    parts.append(markdown(["what", "target", "measured", "holds"], verdicts))
    return "\n".join(parts)


def sizes(found: Results) -> str:
    """Files, memory and time by the size of a head."""
    if "sizes" not in found:
        return "Not measured yet: `python benchmarks/bench_sizes.py`, then render this page."
    rows = [row for row in found["sizes"]["rows"] if "failed" not in row]
    names = [name for name in rows[0] if name not in {"classes", "features", "posterior"}]
    cells = [
        [f"{row['classes']:,}", f"{row['features']:,}", row["posterior"].removesuffix("Posterior"),
         *(row[name] for name in names)]
        for row in rows
    ]  # fmt: skip
    return markdown(["K", "D", "curvature", *names], cells)
