// Package race decides what a dialer does next: which questions to ask, which
// address to try when, and who has won. It follows Happy Eyeballs version 2 (RFC
// 8305) and the draft of version 3 (draft-ietf-happy-happyeyeballs-v3).
//
// A [Machine] does no I/O and reads no clock. Events go in with the time that
// has passed since the dial began; commands come out. The same events at the
// same times always give the same commands, so a race can be replayed, and a test
// can run a thousand of them in a second.
//
// # The life of a race
//
// [Begin] makes the machine ask its questions, all at once. The first attempt
// starts when an address is known and either the preferred family and the
// service records have answered, or the Resolution Delay has passed. Then one
// attempt follows the other, at the Connection Attempt Delay or at once after a
// failure; no attempt is given up before the race is over. Answers that come
// late join the list, which is sorted anew as a whole, tried addresses included,
// so that families keep alternating. The first attempt to finish wins, all others
// are cancelled. With nothing left to try and nothing left to hear, the race is
// lost.
//
// # Contract with the runner
//
//   - Time never goes back.
//   - After [Connect] the runner reports Finished or Failed exactly once, also if
//     it was told to cancel in between. Connected may come before, once.
//   - After [Ask] it reports one Answered for every type asked.
//   - After [Wake] it reports Tick at that time or later; only the newest Wake
//     counts. A superfluous Tick does no harm.
//   - After [Win] or [Lose] the machine gives no more commands.
package race
