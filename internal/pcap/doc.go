// Package pcap reads and writes capture files: pcap and pcapng.
//
// A Reader takes either format from a stream, in either byte order, plain or gzipped, with micro-
// or nanoseconds, and returns one Record after the other:
//
//	r, err := pcap.NewReader(f)
//	for err == nil {
//		var rec pcap.Record
//		if rec, err = r.Next(); err == nil {
//			frame := p.DecodeFrame(rec.Link, rec.Data)
//			...
//		}
//	}
//	if err != io.EOF {
//		return err
//	}
//
// Files are not trusted, so every length is bounded: a record has at most MaxPacket bytes, a
// section at most MaxInterfaces interfaces. Other blocks are skipped without being stored. A file
// that ends in the middle of a record gives an error that wraps io.ErrUnexpectedEOF after all
// complete records.
//
// Writer writes pcap, NGWriter pcapng, which can also hold interfaces and comments.
package pcap
