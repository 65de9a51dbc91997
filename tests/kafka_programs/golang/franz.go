package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func franz(bootstrap string, as *login, more ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ClientID("franz")}
	if as != nil {
		options = append(options, kgo.DialTLSConfig(as.tls))
		options = append(options, kgo.SASL(scram.Auth{User: as.user, Pass: as.password}.AsSha256Mechanism()))
	}
	return kgo.NewClient(append(options, more...)...)
}

func franzTopic(ctx context.Context, client *kgo.Client, topic string, partitions int32) error {
	_, err := kadm.NewClient(client).CreateTopic(ctx, partitions, -1, nil, topic)
	return err
}

func franzSend(ctx context.Context, client *kgo.Client, topic string, from, to int) error {
	records := make([]*kgo.Record, 0, to-from)
	for number := from; number < to; number++ {
		records = append(records, &kgo.Record{
			Topic:   topic,
			Key:     []byte(fmt.Sprint(number % 20)),
			Value:   []byte(value(number)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: nil}, {Key: "n", Value: []byte{}}},
		})
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func franzRecords(ctx context.Context, bootstrap string, as *login) (any, error) {
	read := map[string]int{}
	for _, codec := range codecs {
		topic := "franz-" + codec
		options := []kgo.Opt{kgo.ProducerBatchCompression(franzCodecs[codec]), kgo.ConsumeTopics(topic)}
		client, err := franz(bootstrap, as, append(options, kgo.ConsumerGroup(topic))...)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		if err := franzTopic(ctx, client, topic, 1); err != nil {
			return nil, err
		}
		if err := franzSend(ctx, client, topic, 0, count); err != nil {
			return nil, err
		}
		for read[codec] < count {
			fetches := client.PollFetches(ctx)
			if errs := fetches.Errors(); len(errs) > 0 {
				return nil, errs[0].Err
			}
			for _, record := range fetches.Records() {
				n := read[codec]
				if string(record.Value) != value(n) || record.Offset != int64(n) || len(record.Headers) != 2 {
					return nil, fmt.Errorf("%s: at %d came %d %q", codec, n, record.Offset, record.Value)
				}
				read[codec]++
			}
		}
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// franzMembers are consumers of one group, and what they have read.
type franzMembers struct {
	mutex   sync.Mutex
	owned   map[int]int
	seen    reads
	failure error
}

func (all *franzMembers) run(ctx context.Context, number int, bootstrap string, as *login, topic string, options []kgo.Opt) (*kgo.Client, error) {
	change := func(by int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			all.mutex.Lock()
			defer all.mutex.Unlock()
			all.owned[number] += by * len(moved[topic])
		}
	}
	options = append(options,
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(change(1)), kgo.OnPartitionsLost(change(-1)),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, moved map[string][]int32) {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				all.fail(fmt.Errorf("commit while partitions move: %w", err))
			}
			change(-1)(ctx, client, moved)
		}))
	client, err := franz(bootstrap, as, options...)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			if err := fetches.Err(); err != nil {
				all.fail(err)
			}
			all.mutex.Lock()
			for _, record := range fetches.Records() {
				all.seen[string(record.Value)]++
			}
			all.mutex.Unlock()
		}
	}()
	return client, nil
}

func (all *franzMembers) fail(err error) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	all.failure = err
}

// until waits for a state of the group: how many partitions each member has, and records in all.
func (all *franzMembers) until(ctx context.Context, each []int, total int) error {
	for {
		all.mutex.Lock()
		owned := []int{}
		for _, number := range all.owned {
			if number > 0 {
				owned = append(owned, number)
			}
		}
		is, failure := slices.Equal(owned, each) && all.seen.complete(total), all.failure
		all.mutex.Unlock()
		if is || failure != nil {
			return failure
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w with %v of %v partitions, %d of %d records", ctx.Err(), owned, each, len(all.seen), total)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func franzGroup(ctx context.Context, bootstrap string, as *login, topic string, options ...kgo.Opt) (any, error) {
	producer, err := franz(bootstrap, as)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := franzTopic(ctx, producer, topic, partitions); err != nil {
		return nil, err
	}
	if err := franzSend(ctx, producer, topic, 0, count); err != nil {
		return nil, err
	}
	all := &franzMembers{owned: map[int]int{}, seen: reads{}}
	clients := []*kgo.Client{}
	for number := range 3 {
		client, err := all.run(ctx, number, bootstrap, as, topic, options)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	if err := all.until(ctx, []int{2, 2, 2}, count); err != nil {
		return nil, err
	}
	clients[0].Close()
	if err := franzSend(ctx, producer, topic, count, 2*count); err != nil {
		return nil, err
	}
	if err := all.until(ctx, []int{3, 3}, 2*count); err != nil {
		return nil, err
	}
	return map[string]int{"read": len(all.seen), "repeated": all.seen.repeated()}, nil
}

func franzCooperative(ctx context.Context, bootstrap string, as *login) (any, error) {
	balancer := kgo.Balancers(kgo.CooperativeStickyBalancer())
	return franzGroup(ctx, bootstrap, as, "franz-cooperative", balancer)
}

func franzServer(ctx context.Context, bootstrap string, as *login) (any, error) {
	return franzGroup(ctx, bootstrap, as, "franz-server", kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
}
