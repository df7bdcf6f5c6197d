"""A table of cells ready to be read, and its renderings: Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from laplacebridge.errors import ShapeError

# What LaTeX would take for a command, and what it has no letter for.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "−": "$-$",
        "→": r"$\to$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "×": r"$\times$",
        "α": r"$\alpha$",
        "μ": r"$\mu$",
        "π": r"$\pi$",
        "Σ": r"$\Sigma$",
        "σ": r"$\sigma$",
        "²": r"$^2$",
        "₁": r"$_1$",
        "∞": r"$\infty$",
    }
)


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        headings: Headings of the columns.
        rows: Cells, as many in each row as there are headings. What the paper printed
            stands between asterisks.
        caption: A line above it.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ShapeError(
                    f"`Table(headings, rows)` needs {len(self.headings)} cells in every row; got"
                    f" {len(row)}: {row}."
                )

    def markdown(self) -> str:
        """For reading: the first column to the left, numbers to the right.

        Example:
            >>> print(Table(["method", "KL"], [["LB", "0.09"]]).markdown())
            | method | KL |
            |---|---:|
            | LB | 0.09 |
        """
        rule = "|".join(["---"] + ["---:"] * (len(self.headings) - 1))
        lines = [
            f"| {' | '.join(self.headings)} |",
            f"|{rule}|",
            *(f"| {' | '.join(row)} |" for row in self.rows),
        ]
        return "\n".join([self.caption, "", *lines] if self.caption else lines)

    def latex(self) -> str:
        r"""For a paper; needs the package booktabs.

        Example:
            >>> print(Table(["method", "KL"], [["LB", "*0.09*"]]).latex())
            \begin{tabular}{lr}
            \toprule
            method & KL \\
            \midrule
            LB & \emph{0.09} \\
            \bottomrule
            \end{tabular}
        """
        body = [f"{' & '.join(map(_latex_cell, row))} \\\\" for row in (self.headings, *self.rows)]
        lines = [
            *([f"% {self.caption}"] if self.caption else []),
            rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines)

    def csv(self) -> str:
        """For a program: plain cells, the caption left out.

        Example:
            >>> print(Table(["method", "KL"], [["LB", "*0.09*"]]).csv(), end="")
            method,KL
            LB,0.09
        """
        written = io.StringIO()
        rows = [[_plain(cell) for cell in row] for row in (self.headings, *self.rows)]
        csv.writer(written, lineterminator="\n").writerows(rows)
        return written.getvalue()


def _plain(cell: str) -> str:
    return cell.replace("**", "").strip("*")


def _latex_cell(cell: str) -> str:
    text = _plain(cell).translate(_LATEX)
    if cell.startswith("**"):
        return rf"\textbf{{{text}}}"
    return rf"\emph{{{text}}}" if cell.startswith("*") else text
