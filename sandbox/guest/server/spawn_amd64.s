#include "textflag.h"

// func rawVfork(trap, flags, a2, a3 uintptr) (pid, errno uintptr)
//
// The child runs on its parent's stack until it calls execve, and may overwrite
// the return address there: it is kept in a register across the call.
TEXT ·rawVfork(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	flags+8(FP), DI
	MOVQ	a2+16(FP), SI
	MOVQ	a3+24(FP), DX
	MOVQ	$0, R10
	MOVQ	$0, R8
	MOVQ	$0, R9
	MOVQ	trap+0(FP), AX
	POPQ	R12
	SYSCALL
	PUSHQ	R12
	CMPQ	AX, $0xfffffffffffff001
	JLS	ok
	MOVQ	$-1, pid+32(FP)
	NEGQ	AX
	MOVQ	AX, errno+40(FP)
	RET
ok:
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET
