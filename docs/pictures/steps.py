"""Draw steps.svg: how far one coordinate has come after every layer of a butterfly and every round of groups.

python docs/pictures/steps.py
"""

from __future__ import annotations

from pathlib import Path

import swallowtail as st

N, STEP, TOP, WIDTH = 8, 22, 66, 190
INK, LINE, TURN, GROUP = "#5b6472", "#c3cad4", "#0072b2", "#e6f1f8"
Part = list[tuple[int, int]]  # rotations, in order
ROUNDS: list[list[tuple[list[int], Part]]] = [
    [([0, 1, 2, 3], [(0, 1), (0, 2), (1, 3)]), ([4, 5, 6, 7], [(4, 5), (4, 6), (5, 7)])],
    [([0, 1, 4, 5], [(0, 4), (1, 5)]), ([2, 3, 6, 7], [(2, 6), (3, 7)])],
]


def panel(title: str, left: int, top: int, reached: set[int], turns: Part, groups: list[list[int]]) -> str:
    """Eight coordinates, filled where the first has come; bars are rotations, shaded columns groups."""
    parts = [f'<text x="{left}" y="{top - 22}" font-size="14">{title}</text>']
    span = WIDTH - 50
    for k, members in enumerate(groups):
        x = left + 8 + k * span / max(1, len(groups))
        parts.append(
            f'<rect x="{x:.0f}" y="{top - 10}" width="{span / len(groups) - 8:.0f}" height="{STEP * (N - 1) + 20}" '
            f'rx="6" fill="{GROUP}"/><text x="{x + 5:.0f}" y="{top + STEP * (N - 1) + 26}" font-size="11">'
            f"{' '.join(map(str, members))}</text>"
        )
    for i in range(N):
        y = top + STEP * i
        parts.append(f'<line x1="{left}" x2="{left + span}" y1="{y}" y2="{y}" stroke="{LINE}"/>')
        fill = TURN if i in reached else "white"
        parts.append(
            f'<circle cx="{left + span + 10}" cy="{y}" r="7" fill="{fill}" stroke="{TURN}"/>'
            f'<text x="{left + span + 24}" y="{y + 4}" font-size="11">{i}</text>'
        )
    for k, (i, j) in enumerate(turns):
        x = left + 18 + k * (span - 30) / max(1, len(turns) - 1)
        ends = "".join(f'<circle cx="{x:.0f}" cy="{top + STEP * e}" r="3.5" fill="{TURN}"/>' for e in (i, j))
        line = f'y1="{top + STEP * i}" y2="{top + STEP * j}" stroke="{TURN}" stroke-width="2"'
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" {line}/>{ends}')
    return "\n".join(parts)


def spread(reached: set[int], turns: Part) -> set[int]:
    """Who has heard of those that are reached, after the rotations."""
    for i, j in turns:
        if i in reached or j in reached:
            reached = reached | {i, j}
    return reached


def main() -> None:
    """Write the file beside this one."""
    wiring, body, reached = st.Butterfly(N), [], {0}
    body.append(panel("a butterfly", 10, TOP, reached, [], []))
    for index, pairs in enumerate(wiring.layers()):
        turns = [(int(i), int(j)) for i, j in pairs]
        reached = spread(reached, turns)
        title = f"layer {index + 1}: {N >> (index + 1)} apart"
        body.append(panel(title, 10 + (index + 1) * (WIDTH + 20), TOP, reached, turns, []))
    low, reached = TOP + 270, {0}
    body.append(panel("groups of four", 10, low, reached, [], []))
    for index, groups in enumerate(ROUNDS):
        turns = [turn for _, own in groups for turn in own]
        reached = spread(reached, turns)
        left, members = 10 + (index + 1) * (WIDTH + 20), [members for members, _ in groups]
        body.append(panel(f"round {index + 1}: two groups", left, low, reached, turns, members))
    style = f"font-family:system-ui,sans-serif;fill:{INK}"
    view = f'viewBox="0 0 {4 * (WIDTH + 20) + 10} {low + STEP * N + 30}"'
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} style="{style}">\n' + "\n".join(body) + "\n</svg>\n"
    )
    (Path(__file__).parent / "steps.svg").write_text(svg, encoding="utf8")


if __name__ == "__main__":
    main()
