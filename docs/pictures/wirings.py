"""Draw wirings.svg: a butterfly, chosen pairs and grouped rounds on eight coordinates, layer by layer.

python docs/pictures/wirings.py
"""

from __future__ import annotations

from pathlib import Path

import swallowtail as st

N, STEP, TOP, LAYER = 8, 22, 46, 46
INK, LINE, TURN = "#5b6472", "#c3cad4", "#0072b2"
PAIRS = st.Pairs(N, [[(0, 3), (4, 5)], [(3, 4), (1, 6)], [(4, 7), (0, 1), (2, 3)]])
GROUPED = st.Grouped(
    N,
    [
        [([0, 3, 4, 5], [(0, 3), (4, 5), (3, 4)]), ([1, 2, 6, 7], [(1, 6), (2, 7)])],
        [([0, 1, 2, 4], [(0, 1), (2, 4), (1, 2)])],
    ],
)


def panel(title: str, wiring: st.Butterfly | st.Pairs, left: int) -> str:
    """One wiring: coordinates are lines from left to right, a rotation is a bar between two of them."""
    width = LAYER * wiring.n_layers + 20
    parts = [f'<text x="{left}" y="20" font-size="15">{title}</text>']
    for i in range(N):
        y = TOP + STEP * i
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="{LINE}"/>')
    for index, pairs in enumerate(wiring.layers()):
        for turn, (i, j) in enumerate(pairs):
            # Bars of one layer stand beside each other, so that none hides another.
            x = left + 16 + LAYER * index + 26 * turn / max(1, len(pairs) - 1)
            parts.append(
                f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP + STEP * i}" y2="{TOP + STEP * j}" '
                f'stroke="{TURN}" stroke-width="2"/>'
            )
            parts += [
                f'<circle cx="{x:.0f}" cy="{TOP + STEP * k}" r="4" fill="{TURN}"/>' for k in (int(i), int(j))
            ]
    return "\n".join(parts)


def main() -> None:
    """Write the file beside this one."""
    panels = [
        ("a butterfly: 4, 2 and 1 apart", st.Butterfly(N), 10),
        ("pairs chosen from a matrix", PAIRS, 310),
        ("two rounds of groups of four", GROUPED, 560),
    ]
    body = "\n".join(panel(*each) for each in panels)
    style = f"font-family:system-ui,sans-serif;fill:{INK}"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 230" style="{style}">\n{body}\n</svg>\n'
    (Path(__file__).parent / "wirings.svg").write_text(svg, encoding="utf8")


if __name__ == "__main__":
    main()
