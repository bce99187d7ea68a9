"""Our instructions are those that LLVM's assembler makes of their names."""

import llvmlite.binding as llvm
import numpy as np
import pytest

from swallowtail.kernels.cpu import straight
from swallowtail.kernels.cpu.codegen import x86

pytestmark = pytest.mark.skipif(not straight.POSSIBLE, reason="machine code is written for AVX-512 only")

GENERAL = {0: "rax", 1: "rcx", 2: "rdx", x86.RSI: "rsi", x86.RDI: "rdi", 8: "r8", 11: "r11"}
REGISTERS = [(0, 0, 0), (7, 8, 15), (16, 23, 9), (31, 24, 30), (12, 31, 17)]
PLACES = [(x86.RDI, 64), (x86.RSI, 508), (0, -512), (11, 64 * 127), (8, 12345), (2, -70000)]


def assembled(lines):
    """The bytes that LLVM makes of lines of Intel's syntax."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_default_triple().create_target_machine(features="+avx512f")
    text = "\\0A".join([".intel_syntax noprefix", *lines, ".att_syntax"])
    module = llvm.parse_assembly(f'target triple = "{llvm.get_process_triple()}"\nmodule asm "{text}"')
    sections = llvm.ObjectFileRef.from_data(machine.emit_object(module)).sections()
    return next(section.data() for section in sections if section.name() == b".text")


def operation(form, double, scalar):
    """Mnemonic and operands, in Intel's order."""
    kind = ("s" if scalar else "p") + ("d" if double else "s")
    register = "xmm" if scalar else "zmm"
    width = (
        f"{'qword' if double else 'dword'} ptr"
        if scalar or form not in (x86.LOAD, x86.STORE)
        else "zmmword ptr"
    )
    spread = "" if scalar else "{1to8}" if double else "{1to16}"
    move = f"vmov{kind}" if scalar else f"vmovu{kind}"
    text = {
        x86.LOAD: move + " {r}{a}, {w} {m}", x86.STORE: move + " {w} {m}, {r}{a}",
        x86.SPREAD: (move if scalar else f"vbroadcasts{kind[1]}") + " {r}{a}, {w} {m}",
        x86.TIMES_PLUS: f"vfmadd213{kind} " + "{r}{a}, {r}{b}, {r}{c}",
        x86.PLUS_TIMES: f"vfmadd231{kind} " + "{r}{a}, {r}{b}, {w} {m}{s}",
        x86.TIMES: f"vmul{kind} " + "{r}{a}, {r}{b}, {w} {m}{s}",
    }[form]  # fmt: skip
    return lambda a, b, c, m: text.format(r=register, w=width, s=spread, a=a, b=b, c=c, m=m)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_every_form_on_low_and_high_registers(double, scalar):
    lines, ours = [], b""
    out, number = np.zeros(32, np.uint8), 8 if double else 4
    for form in range(6):
        unit = number if scalar or form not in (x86.LOAD, x86.STORE) else 64
        write = operation(form, double, scalar)
        for a, b, c in REGISTERS:
            for base, displacement in PLACES:
                in_memory = form != x86.TIMES_PLUS
                second = 0 if form in (x86.LOAD, x86.STORE, x86.SPREAD) else b
                fields = x86.FORMS[int(double), int(scalar)][form]
                size = x86._instruction(
                    out, 0, fields, a, second, -1 if in_memory else c, base, displacement, unit
                )
                ours += out[:size].tobytes()
                lines.append("{evex} " + write(a, b, c, f"[{GENERAL[base]} + {displacement}]"))
    theirs = assembled(lines)
    assert ours == theirs.rstrip(b"\x00")[: len(ours)]
    assert len(theirs.rstrip(b"\x00")) <= len(ours)
