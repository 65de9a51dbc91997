package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzTransactions copies a topic in transactions with the offsets of a group, every other one of
// them aborted and then done again, and reads the copy.
func franzTransactions(ctx context.Context, bootstrap string, as *login) (any, error) {
	from, to := "franz-txn-in", "franz-txn-out"
	client, err := franz(bootstrap, as, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, topic := range []string{from, to} {
		if err := franzTopic(ctx, client, topic, 3); err != nil {
			return nil, err
		}
	}
	if err := franzSend(ctx, client, from, 0, count); err != nil {
		return nil, err
	}
	falling, err := franzCopy(ctx, bootstrap, as, from, to)
	if err != nil {
		return nil, err
	}
	seen, err := franzCommitted(ctx, bootstrap, as, to)
	if err != nil {
		return nil, err
	}
	return map[string]int{"read": len(seen), "repeated": seen.repeated(), "falling": falling}, nil
}

// franzCopy tells how often an offset was lower than the one before in the same transaction.
func franzCopy(ctx context.Context, bootstrap string, as *login, from, to string) (int, error) {
	options := []kgo.Opt{
		kgo.TransactionalID(to), kgo.ConsumerGroup(to), kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.SeedBrokers(bootstrap),
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	copied, falling := 0, 0
	for try := 0; copied < count; try++ {
		fetches := session.PollRecords(ctx, 50)
		if errs := fetches.Errors(); len(errs) > 0 {
			return 0, errs[0].Err
		}
		if err := session.Begin(); err != nil {
			return 0, err
		}
		copies := []*kgo.Record{}
		for _, record := range fetches.Records() {
			copies = append(copies, &kgo.Record{Topic: to, Key: record.Key, Value: record.Value})
		}
		last := map[int32]int64{}
		for _, result := range session.ProduceSync(ctx, copies...) {
			if result.Err != nil {
				return 0, result.Err
			}
			if before, known := last[result.Record.Partition]; known && result.Record.Offset <= before {
				falling++
			}
			last[result.Record.Partition] = result.Record.Offset
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(try%2 == 1))
		if err != nil {
			return 0, err
		}
		if committed {
			copied += len(copies)
		}
	}
	return falling, nil
}

func franzCommitted(ctx context.Context, bootstrap string, as *login, topic string) (reads, error) {
	client, err := franz(
		bootstrap, as, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	seen := reads{}
	for !seen.complete(count) {
		fetches := client.PollFetches(ctx)
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("%d were read: %w", len(seen), errs[0].Err)
		}
		for _, record := range fetches.Records() {
			seen[string(record.Value)]++
		}
	}
	return seen, nil
}
