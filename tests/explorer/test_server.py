"""The server: what it gives, whom it refuses, what it does with bad files."""

import http.client
import io
import json
import time
from pathlib import Path

import numpy as np
import pytest

from swallowtail.cli.files import read_array
from swallowtail.datasets import random_symmetric
from swallowtail.explorer import server
from swallowtail.explorer.server import serve
from swallowtail.explorer.study import Study
from swallowtail.io import load


@pytest.fixture(scope="module")
def explorer():
    running = serve(Study("first.npy", random_symmetric(8, 2, 0)), read_array)
    yield running
    running.close()


def request(explorer, method="GET", path="", body=None, token=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=20)
    address = f"/{explorer.token if token is None else token}/{path}"
    connection.request(
        method, address, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def wait(explorer):
    for _ in range(600):
        overview = json.loads(request(explorer, path="overview")[1])
        if all(fit["ready"] for fit in overview["fits"]):
            return overview
        time.sleep(0.1)
    raise AssertionError("the fits did not end")


def test_the_page_and_its_data(explorer, tmp_path):
    answer, page = request(explorer)
    assert answer.status == 200
    assert b"swallowtail" in page
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    for name in ("explorer.js", "explorer.css"):
        assert request(explorer, path=name)[0].status == 200
    overview = wait(explorer)
    budget = overview["fits"][0]["rotations"]
    assert json.loads(request(explorer, path="matrix")[1])["side"] == 8
    assert "layers" in json.loads(request(explorer, path=f"detail?rotations={budget}")[1])
    answer, body = request(explorer, path=f"operator?rotations={budget}")
    assert answer.headers["Content-Disposition"] == f'attachment; filename="first-{budget}.safetensors"'
    (tmp_path / "got.safetensors").write_bytes(body)
    assert load(tmp_path / "got.safetensors").n == 8


def test_it_listens_on_this_machine_only(explorer):
    assert explorer.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "guess"},
        {"token": ""},
        {"Host": "example.org"},
        {"Host": "127.0.0.1"},
        {"Origin": "http://example.org"},
        {"Origin": "null"},
    ],
)
def test_others_are_refused(explorer, wrong):
    for method, path in (("GET", "overview"), ("POST", "upload?name=a.npy")):
        answer, body = request(explorer, method, path, body=b"" if method == "POST" else None, **wrong)
        assert answer.status == 403
        assert b"first" not in body


@pytest.mark.parametrize(
    "path", ["nothing", "detail", "detail?rotations=7x", "operator?rotations=-1", "../server.py"]
)
def test_what_is_not_there(explorer, path):
    assert request(explorer, path=path)[0].status == 404


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("a.npy", b"junk", "a.npy: expected an array of numbers written by numpy.save"),
        ("a.npy", npy(np.array([{}], dtype=object), allow_pickle=True), "Python objects"),
        ("a.npy", npy(np.triu(np.ones((3, 3)))), "a symmetric matrix"),
        ("a.csv", b"1,2\n3", "2 columns at first and 1 in line 2"),
        ("a.exe", b"", "a.exe: expected .npy"),
        ("", b"", ".npy"),
        ("../../a.pkl", b"", ".npy"),
    ],
)
def test_bad_files_are_named_and_leave_the_study(explorer, name, body, message):
    before = explorer.study
    answer, content = request(explorer, "POST", f"upload?name={name}", body=body)
    error = json.loads(content)["error"]
    assert answer.status == 400
    assert message in error
    assert "/tmp" not in error
    assert explorer.study is before


def test_uploads_are_bounded(explorer, monkeypatch):
    monkeypatch.setattr(server, "LARGEST_UPLOAD", 10)
    assert request(explorer, "POST", "upload?name=a.npy", body=b"x" * 11)[0].status == 413
    assert request(explorer, "POST", "elsewhere", body=b"x")[0].status == 400


def test_another_matrix_takes_its_place(explorer):
    answer, content = request(explorer, "POST", "upload?name=second.npy", body=npy(random_symmetric(6, 2, 3)))
    assert answer.status == 200
    assert json.loads(content)["name"] == "second.npy"
    assert wait(explorer)["n"] == 6
    assert Path(explorer.study.name).suffix == ".npy"
