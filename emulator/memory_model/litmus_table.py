"""What the PTX memory model (PTX ISA 8.5, "Memory Consistency Model") says of the classic litmus tests.

`allowed` outcomes occur in PTX and here, `forbidden` in neither; `not_produced` are allowed by PTX and never occur here (the documented
differences). Placement: `rank.block`; threads "0.0" and "0.1" share a device, "0.0" and "1.0" do not.
"""

from .litmus import Litmus


def _mp(name: str, store: str, load: str, reader: str, weak: str) -> Litmus:
    """Message passing: data x, flag y. `weak` says whether the flag may be seen without the data."""
    threads = f"0.0: W x 1; {store}\n{reader}: {load}; R x b"
    stale = ("a=1 b=0",)
    return Litmus(
        name,
        threads,
        ("a=0 b=0", "a=1 b=1") + (stale if weak == "allowed" else ()),
        stale if weak == "forbidden" else (),
    )


MESSAGE_PASSING = (
    _mp("MP rel.sys acq.sys, other gpu", "W.rel.sys y 1", "R.acq.sys y a", "1.0", "forbidden"),
    _mp("MP rel.gpu acq.sys, other gpu", "W.rel.gpu y 1", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP rel.sys acq.gpu, other gpu", "W.rel.sys y 1", "R.acq.gpu y a", "1.0", "allowed"),
    _mp("MP rel.gpu acq.gpu, same gpu", "W.rel.gpu y 1", "R.acq.gpu y a", "0.1", "forbidden"),
    _mp("MP rel.sys acq.gpu, same gpu", "W.rel.sys y 1", "R.acq.gpu y a", "0.1", "forbidden"),
    _mp("MP rel.cta acq.gpu, same gpu", "W.rel.cta y 1", "R.acq.gpu y a", "0.1", "allowed"),
    _mp("MP rel.gpu acq.cta, same gpu", "W.rel.gpu y 1", "R.acq.cta y a", "0.1", "allowed"),
    _mp("MP rel.cta acq.cta, same block", "W.rel.cta y 1", "R.acq.cta y a", "0.0", "forbidden"),
    _mp("MP rlx acq", "W.rlx.sys y 1", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP rel rlx", "W.rel.sys y 1", "R.rlx.sys y a", "1.0", "allowed"),
    _mp("MP rlx rlx", "W.rlx.sys y 1", "R.rlx.sys y a", "1.0", "allowed"),
    _mp("MP plain flag, acq", "W y 1", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP rel, plain poll", "W.rel.sys y 1", "R y a", "1.0", "allowed"),
    _mp("MP fence; rlx, acq", "F.acq_rel.sys; W.rlx.sys y 1", "R.acq.sys y a", "1.0", "forbidden"),
    _mp("MP rel, rlx; fence", "W.rel.sys y 1", "R.rlx.sys y a; F.acq_rel.sys", "1.0", "forbidden"),
    _mp("MP fence; rlx, rlx; fence", "F.acq_rel.sys; W.rlx.sys y 1", "R.rlx.sys y a; F.acq_rel.sys", "1.0", "forbidden"),
    _mp("MP gpu fence; rlx, acq, other gpu", "F.acq_rel.gpu; W.rlx.sys y 1", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP fence; rlx.gpu, acq, other gpu", "F.acq_rel.sys; W.rlx.gpu y 1", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP gpu fence; rlx.gpu, rlx.gpu; gpu fence, same gpu", "F.acq_rel.gpu; W.rlx.gpu y 1", "R.rlx.gpu y a; F.acq_rel.gpu", "0.1", "forbidden"),
    _mp("MP fence after the flag", "W.rlx.sys y 1; F.acq_rel.sys", "R.acq.sys y a", "1.0", "allowed"),
    _mp("MP fence before the poll", "W.rel.sys y 1", "F.acq_rel.sys; R.rlx.sys y a", "1.0", "allowed"),
    _mp("MP plain flag between fences", "F.acq_rel.sys; W y 1", "R y a; F.acq_rel.sys", "1.0", "allowed"),
    _mp("MP rel exchange, acq add", "X.rel.sys y 1 p", "A.acq.sys y 0 a", "1.0", "forbidden"),
    _mp("MP rlx exchange, acq add", "X.rlx.sys y 1 p", "A.acq.sys y 0 a", "1.0", "allowed"),
    _mp("MP rel, rlx read then acq read of the flag", "W.rel.sys y 1", "R.rlx.sys y a; R.acq.sys y c", "1.0", "forbidden"),
)  # fmt: skip

TABLE = (
    *MESSAGE_PASSING,
    # The data and the flag are stored by different threads of one block; a block barrier joins them, or does not.
    Litmus("MP data by another thread, barrier", "0.0: W x 1; B\n0.0: B; W.rel.sys y 1\n1.0: R.acq.sys y a; R x b", ("a=1 b=1",), ("a=1 b=0",)),
    Litmus("MP data by another thread, no barrier", "0.0: W x 1\n0.0: W.rel.sys y 1\n1.0: R.acq.sys y a; R x b", ("a=1 b=1", "a=1 b=0")),
    Litmus("MP poll by another thread, barrier", "0.0: W x 1; W.rel.sys y 1\n1.0: R.acq.sys y a; B\n1.0: B; R x b", ("a=1 b=1",), ("a=1 b=0",)),
    Litmus("MP poll by another thread, no barrier", "0.0: W x 1; W.rel.sys y 1\n1.0: R.acq.sys y a\n1.0: R x b", ("a=1 b=1", "a=1 b=0")),
    # Store buffering: only sc fences of both threads forbid it.
    Litmus("SB plain", "0.0: W x 1; R y a\n1.0: W y 1; R x b", ("a=0 b=0", "a=1 b=1", "a=0 b=1")),
    Litmus("SB rel acq", "0.0: W.rel.sys x 1; R.acq.sys y a\n1.0: W.rel.sys y 1; R.acq.sys x b", ("a=0 b=0",)),
    Litmus("SB acq_rel fences", "0.0: W.rlx.sys x 1; F.acq_rel.sys; R.rlx.sys y a\n1.0: W.rlx.sys y 1; F.acq_rel.sys; R.rlx.sys x b", ("a=0 b=0",)),
    Litmus("SB sc fences", "0.0: W.rlx.sys x 1; F.sc.sys; R.rlx.sys y a\n1.0: W.rlx.sys y 1; F.sc.sys; R.rlx.sys x b", ("a=1 b=1", "a=0 b=1"), ("a=0 b=0",)),
    Litmus("SB sc fences, plain accesses", "0.0: W x 1; F.sc.sys; R y a\n1.0: W y 1; F.sc.sys; R x b", ("a=1 b=1",), ("a=0 b=0",)),
    Litmus("SB sc.gpu fences, other gpu", "0.0: W.rlx.sys x 1; F.sc.gpu; R.rlx.sys y a\n1.0: W.rlx.sys y 1; F.sc.gpu; R.rlx.sys x b", ("a=0 b=0",)),
    Litmus("SB sc.gpu fences, same gpu", "0.0: W.rlx.gpu x 1; F.sc.gpu; R.rlx.gpu y a\n0.1: W.rlx.gpu y 1; F.sc.gpu; R.rlx.gpu x b", ("a=1 b=1",), ("a=0 b=0",)),
    Litmus("SB one sc fence", "0.0: W.rlx.sys x 1; F.sc.sys; R.rlx.sys y a\n1.0: W.rlx.sys y 1; F.acq_rel.sys; R.rlx.sys x b", ("a=0 b=0",)),
    # Independent reads of independent writes: needs memory that is not multi-copy atomic.
    Litmus("IRIW acq", "0.0: W.rlx.sys x 1\n1.0: W.rlx.sys y 1\n2.0: R.acq.sys x a; R.acq.sys y b\n3.0: R.acq.sys y c; R.acq.sys x d", ("a=1 b=0 c=1 d=0",)),
    Litmus("IRIW rel acq", "0.0: W.rel.sys x 1\n1.0: W.rel.sys y 1\n2.0: R.acq.sys x a; R.acq.sys y b\n3.0: R.acq.sys y c; R.acq.sys x d", ("a=1 b=0 c=1 d=0",)),
    Litmus("IRIW sc fences", "0.0: W.rlx.sys x 1\n1.0: W.rlx.sys y 1\n2.0: R.rlx.sys x a; F.sc.sys; R.rlx.sys y b\n3.0: R.rlx.sys y c; F.sc.sys; R.rlx.sys x d", ("a=1 b=1 c=1 d=1",), ("a=1 b=0 c=1 d=0",)),
    Litmus("IRIW sc.gpu fences, other gpus", "0.0: W.rlx.sys x 1\n1.0: W.rlx.sys y 1\n2.0: R.rlx.sys x a; F.sc.gpu; R.rlx.sys y b\n3.0: R.rlx.sys y c; F.sc.gpu; R.rlx.sys x d", ("a=1 b=0 c=1 d=0",)),
    # Cumulativity: what reached the middle thread reaches the last.
    Litmus("WRC rel acq", "0.0: W.rlx.sys x 1\n1.0: R.rlx.sys x a; W.rel.sys y 1\n2.0: R.acq.sys y b; R.rlx.sys x c", ("a=1 b=1 c=1",), ("a=1 b=1 c=0",)),
    Litmus("WRC plain store observed by a relaxed read", "0.0: W x 1\n1.0: R.rlx.sys x a; W.rel.sys y 1\n2.0: R.acq.sys y b; R.rlx.sys x c", ("a=1 b=1 c=0",)),
    Litmus("WRC rlx flag", "0.0: W.rlx.sys x 1\n1.0: R.rlx.sys x a; W.rlx.sys y 1\n2.0: R.acq.sys y b; R.rlx.sys x c", ("a=1 b=1 c=0",)),
    Litmus("WRC x at gpu scope, other gpu", "0.0: W.rlx.gpu x 1\n1.0: R.rlx.sys x a; W.rel.sys y 1\n2.0: R.acq.sys y b; R.rlx.sys x c", ("a=1 b=1 c=0",)),
    Litmus("ISA2", "0.0: W x 1; W.rel.sys y 1\n1.0: R.acq.sys y a; W.rel.sys z 1\n2.0: R.acq.sys z b; R x c", ("a=1 b=1 c=1",), ("a=1 b=1 c=0",)),
    Litmus("ISA2 through a gpu, then between gpus", "0.0: W x 1; W.rel.gpu y 1\n0.1: R.acq.gpu y a; W.rel.sys z 1\n1.0: R.acq.sys z b; R x c", ("a=1 b=1 c=1",), ("a=1 b=1 c=0",)),
    Litmus("ISA2 middle relaxed", "0.0: W x 1; W.rel.sys y 1\n1.0: R.rlx.sys y a; W.rel.sys z 1\n2.0: R.acq.sys z b; R x c", ("a=1 b=1 c=0",)),
    # Release chains through counters: read-modify-writes carry releases on, other writes do not.
    Litmus("counter, two releases", "0.0: W x 1; A.rel.sys c 1 p\n1.0: W y 1; A.rel.sys c 1 q\n2.0: R.acq.sys c a; R x b; R y d", ("a=2 b=1 d=1",), ("a=2 b=0", "a=2 d=0")),
    Litmus("counter, rlx add in the chain", "0.0: W x 1; A.rel.sys c 1 p\n1.0: A.rlx.sys c 1 q\n2.0: R.acq.sys c a; R x b", ("a=2 b=1", "a=1 b=0"), ("a=2 b=0",)),
    Litmus("counter, gpu add breaks the chain", "0.0: W x 1; A.rel.sys c 1 p\n1.0: A.rlx.gpu c 1 q\n2.0: R.acq.sys c a; R x b", ("a=2 b=0",)),
    Litmus("chain broken by a store", "0.0: W x 1; W.rel.sys c 1\n1.0: W.rlx.sys c 2\n2.0: R.acq.sys c a; R x b", ("a=2 b=0 [c]=2",), ("a=1 b=0",)),
    Litmus("release, then rlx store by the same thread", "0.0: W x 1; W.rel.sys c 1; W.rlx.sys c 2\n1.0: R.acq.sys c a; R x b", ("a=2 b=1",), ("a=2 b=0",)),
    Litmus("last arrival raises the flag", "0.0: W x 1; A.acq_rel.gpu c 1 p\n0.1: A.acq_rel.gpu c 1 q; X.rel.sys f 1 r\n1.0: R.acq.sys f a; R x b", ("q=1 a=1 b=1", "q=0 a=1 b=0"), ("q=1 a=1 b=0",)),
    Litmus("last arrival with a relaxed counter", "0.0: W x 1; A.rlx.gpu c 1 p\n0.1: A.rlx.gpu c 1 q; X.rel.sys f 1 r\n1.0: R.acq.sys f a; R x b", ("q=1 a=1 b=0",)),
    # Coherence.
    Litmus("CoRR strong", "0.0: W.rlx.sys x 1\n1.0: R.rlx.sys x a; R.rlx.sys x b", ("a=0 b=1", "a=1 b=1"), ("a=1 b=0",)),
    Litmus("CoRR plain reads", "0.0: W x 1\n1.0: R x a; R x b", ("a=0 b=1", "a=1 b=0")),
    Litmus("CoWW", "0.0: W x 1; W x 2", ("[x]=2",), ("[x]=1", "[x]=0")),
    Litmus("CoRW1", "0.0: R x a; W x 1", ("a=0",), ("a=1",)),
    Litmus("CoWR", "0.0: W.rlx.sys x 1; R.rlx.sys x a\n1.0: W.rlx.sys x 2", ("a=1 [x]=1", "a=2 [x]=2", "a=1 [x]=2"), ("a=0", "a=2 [x]=1")),
    Litmus("CoRW2", "0.0: R.rlx.sys x a; W.rlx.sys x 1\n1.0: W.rlx.sys x 2", ("a=2 [x]=1", "a=0 [x]=2"), ("a=2 [x]=2",)),
    Litmus("MP then store", "0.0: W x 1; W.rel.sys y 1\n1.0: R.acq.sys y a; W x 2", ("a=1 [x]=2", "a=0 [x]=1"), ("a=1 [x]=1",)),
    Litmus("adds are atomic", "0.0: A.rlx.sys x 1 a\n1.0: A.rlx.sys x 1 b", ("[x]=2",), ("[x]=1", "a=0 b=0")),
    Litmus("adds at gpu scope between gpus", "0.0: A.rlx.gpu x 1 a\n1.0: A.rlx.gpu x 1 b", ("[x]=2",), (), ("[x]=1",)),
    # Two writes each: stores may take effect before older ones that their thread does not know.
    Litmus("2+2W rlx", "0.0: W.rlx.sys x 1; W.rlx.sys y 2\n1.0: W.rlx.sys y 1; W.rlx.sys x 2", ("[x]=1 [y]=1", "[x]=2 [y]=2", "[x]=2 [y]=1")),
    Litmus("2+2W rel", "0.0: W.rlx.sys x 1; W.rel.sys y 2\n1.0: W.rlx.sys y 1; W.rel.sys x 2", ("[x]=1 [y]=1",)),
    Litmus("2+2W sc fences", "0.0: W.rlx.sys x 1; F.sc.sys; W.rlx.sys y 2\n1.0: W.rlx.sys y 1; F.sc.sys; W.rlx.sys x 2", ("[x]=2 [y]=2",), ("[x]=1 [y]=1",)),
    Litmus("S rlx", "0.0: W.rlx.sys x 2; W.rlx.sys y 1\n1.0: R.rlx.sys y a; W.rlx.sys x 1", ("a=1 [x]=2", "a=1 [x]=1")),
    Litmus("S rel acq", "0.0: W.rlx.sys x 2; W.rel.sys y 1\n1.0: R.acq.sys y a; W.rlx.sys x 1", ("a=1 [x]=1",), ("a=1 [x]=2",)),
    Litmus("R rel acq", "0.0: W.rlx.sys x 1; W.rel.sys y 1\n1.0: W.rlx.sys y 2; R.acq.sys x a", ("a=0 [y]=2",)),
    Litmus("R sc fences", "0.0: W.rlx.sys x 1; F.sc.sys; W.rlx.sys y 1\n1.0: W.rlx.sys y 2; F.sc.sys; R.rlx.sys x a", ("a=1 [y]=2", "a=0 [y]=1"), ("a=0 [y]=2",)),
    # Load buffering is allowed by PTX for relaxed accesses and never produced; with release or acquire it is forbidden.
    Litmus("LB rlx", "0.0: R.rlx.sys x a; W.rlx.sys y 1\n1.0: R.rlx.sys y b; W.rlx.sys x 1", ("a=0 b=0", "a=1 b=0"), (), ("a=1 b=1",)),
    Litmus("LB acq rel", "0.0: R.acq.sys x a; W.rel.sys y 1\n1.0: R.acq.sys y b; W.rel.sys x 1", ("a=0 b=1",), ("a=1 b=1",)),
)  # fmt: skip
