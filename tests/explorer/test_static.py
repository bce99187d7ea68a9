"""The page as one file."""

import json
import re

from swallowtail.datasets import random_symmetric
from swallowtail.explorer.static import write_page
from swallowtail.explorer.study import Study


def test_it_holds_everything(tmp_path):
    study = Study("</script><b>odd.npy", random_symmetric(6, 2, 0))
    study.fit_all()
    path = tmp_path / "page.html"
    write_page(path, [study])
    html = path.read_text(encoding="utf8")
    assert "src=" not in html
    assert not re.search(r'href="(?!operator)', html.replace('href="data:,"', ""))
    (data,) = re.findall(r"window\.STUDIES = (.*?);</script>", html, re.S)
    (stored,) = json.loads(data.replace("<\\/", "</"))
    assert stored["overview"]["name"] == "</script><b>odd.npy"
    assert set(stored["details"]) == {str(budget) for budget in study.budgets}
