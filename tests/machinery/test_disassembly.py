"""What tools/machine_code.py reads from a disassembler's listing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import machine_code

LISTING = """\
.L_x_3:
        /*0010*/                   FFMA R1, R2, R3, R1 ;               /* 0x0000000302017223 */
                                                                       /* 0x000fe40000000001 */
        /*0020*/                   LDS R2, [R4] ;                      /* 0x0000000004027984 */
                                                                       /* 0x000e640000000800 */
        /*0030*/                   FFMA R1, R2, R3, R1 ;               /* 0x0000000302017223 */
                                                                       /* 0x002fcc0000000001 */
        /*0040*/              @P0  BRA `(.L_x_3) ;                     /* 0xfffffffc00000947 */
                                                                       /* 0x000fea000383ffff */
"""


def test_control_bits_of_instructions() -> None:
    label, first, load, second, branch = machine_code.lines_of(LISTING)
    assert (label.address, label.text) == ("", ".L_x_3")
    assert (first.stall, first.writes, first.reads, first.waits) == (2, 7, 7, 0)
    assert (load.stall, load.writes, load.waits) == (2, 1, 0)
    assert (second.stall, second.waits) == (6, 1 << 1)  # for the load
    assert branch.stall == 5
    assert str(load) == "0020  2 w1    000000 LDS R2, [R4]"


def test_cycles_between_the_instructions_of_a_loop() -> None:
    lines = machine_code.lines_of(LISTING)
    (found,) = machine_code.loops(lines, ("FFMA",))
    assert found == ".L_x_3: 5 lines, 15 cycles, 2 of them, apart 4"
    assert not machine_code.loops(lines, ("HMMA",))
