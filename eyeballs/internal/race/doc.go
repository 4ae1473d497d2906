// Package race decides what a dialer does next: which questions to send, which address to try when,
// and which attempt has won. It follows Happy Eyeballs version 2 (RFC 8305) and the draft of
// version 3 (draft-ietf-happy-happyeyeballs-v3).
//
// A [Machine] does no I/O and reads no clock. Events go in with the time that has passed since the
// dial began; commands come out. The same events at the same times always give the same commands.
// So a race can be replayed, and a test can run a thousand of them in a second.
//
// # The life of a race
//
// [Begin] makes the machine send its questions, all at once. The first attempt starts when an
// address is known and either the preferred family and the service records have answered, or the
// Resolution Delay has passed. Then one attempt follows the other, after the Connection Attempt
// Delay or at once after a failure. No attempt is cancelled before the race is over. A late answer
// joins the list, which is then sorted again as a whole, tried addresses included, so that the
// families keep alternating. The first attempt to finish wins, and all others are cancelled. The
// race is lost when nothing is left to try and no answer is outstanding.
//
// # Contract with the runner
//
//   - Time never runs backwards.
//   - After [Connect] the runner reports Finished or Failed exactly once, even if a Cancel came in
//     between. Connected may come before, once.
//   - After [Query] it reports one Answered for every type.
//   - After [Wake] it reports Tick at that time or later; only the newest Wake counts. A
//     superfluous Tick does no harm.
//   - After [Win] or [Lose] the machine gives no more commands.
package race
