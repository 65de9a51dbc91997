package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// saramaScram is the part of SCRAM that sarama leaves to its users.
type saramaScram struct{ *scram.ClientConversation }

func (s *saramaScram) Begin(user, password, authzid string) error {
	client, err := scram.SHA512.NewClient(user, password, authzid)
	if err != nil {
		return err
	}
	s.ClientConversation = client.NewConversation()
	return nil
}

func saramaConfig(as *login) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama"
	config.Version = sarama.MaxVersion
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = time.Second
	if as != nil {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = as.tls
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = as.user, as.password
		config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &saramaScram{} }
	}
	return config
}

func saramaTopic(bootstrap string, as *login, topic string, partitions int32) error {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig(as))
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1}, false)
}

func saramaSend(bootstrap string, config *sarama.Config, topic string, from, to int) error {
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, 0, to-from)
	for number := from; number < to; number++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(fmt.Sprint(number % 20)),
			Value:   sarama.StringEncoder(value(number)),
			Headers: []sarama.RecordHeader{{Key: []byte("n"), Value: nil}},
		})
	}
	return producer.SendMessages(messages)
}

func saramaRecords(ctx context.Context, bootstrap string, as *login) (any, error) {
	read := map[string]int{}
	for _, codec := range codecs {
		topic := "sarama-" + codec
		config := saramaConfig(as)
		config.Producer.Compression = saramaCodecs[codec]
		if err := saramaTopic(bootstrap, as, topic, 1); err != nil {
			return nil, err
		}
		if err := saramaSend(bootstrap, config, topic, 0, count); err != nil {
			return nil, err
		}
		consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
		if err != nil {
			return nil, err
		}
		defer consumer.Close()
		partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for read[codec] < count {
			select {
			case record := <-partition.Messages():
				n := read[codec]
				if string(record.Value) != value(n) || record.Offset != int64(n) || len(record.Headers) != 1 {
					return nil, fmt.Errorf("%s: at %d came %d %q", codec, n, record.Offset, record.Value)
				}
				read[codec]++
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return read, nil
}

// saramaMember is one consumer of a group; all members share what was read.
type saramaMember struct {
	all    *saramaMembers
	number int
}

type saramaMembers struct {
	mutex   sync.Mutex
	owned   map[int]int
	seen    reads
	failure error
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.all.own(m.number, session)
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.all.own(m.number, nil)
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.all.mutex.Lock()
			m.all.seen[string(record.Value)]++
			m.all.mutex.Unlock()
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (all *saramaMembers) own(number int, session sarama.ConsumerGroupSession) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	delete(all.owned, number)
	if session != nil {
		for _, claims := range session.Claims() {
			all.owned[number] = len(claims)
		}
	}
}

func (all *saramaMembers) run(ctx context.Context, number int, bootstrap string, config *sarama.Config, topic string) (sarama.ConsumerGroup, error) {
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, topic, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			err := group.Consume(ctx, []string{topic}, &saramaMember{all, number})
			if errors.Is(err, sarama.ErrClosedConsumerGroup) || ctx.Err() != nil {
				return
			}
			if err != nil {
				all.mutex.Lock()
				all.failure = err
				all.mutex.Unlock()
				return
			}
		}
	}()
	return group, nil
}

// until waits for a state of the group: so many members with as many partitions each, and records in all.
func (all *saramaMembers) until(ctx context.Context, members, total int) error {
	for {
		all.mutex.Lock()
		is := len(all.owned) == members && all.seen.complete(total)
		for _, number := range all.owned {
			is = is && number == partitions/members
		}
		owned, failure := fmt.Sprint(all.owned), all.failure
		all.mutex.Unlock()
		if is || failure != nil {
			return failure
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: members have %s partitions, and read %d of %d", ctx.Err(), owned, len(all.seen), total)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func saramaGroup(ctx context.Context, bootstrap string, as *login, strategy sarama.BalanceStrategy) (any, error) {
	topic := "sarama-" + strategy.Name()
	config := saramaConfig(as)
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	if err := saramaTopic(bootstrap, as, topic, partitions); err != nil {
		return nil, err
	}
	if err := saramaSend(bootstrap, config, topic, 0, count); err != nil {
		return nil, err
	}
	all := &saramaMembers{owned: map[int]int{}, seen: reads{}}
	groups := []sarama.ConsumerGroup{}
	for number := range 3 {
		group, err := all.run(ctx, number, bootstrap, config, topic)
		if err != nil {
			return nil, err
		}
		defer group.Close()
		groups = append(groups, group)
	}
	if err := all.until(ctx, 3, count); err != nil {
		return nil, err
	}
	if err := groups[0].Close(); err != nil {
		return nil, err
	}
	if err := saramaSend(bootstrap, config, topic, count, 2*count); err != nil {
		return nil, err
	}
	if err := all.until(ctx, 2, 2*count); err != nil {
		return nil, err
	}
	return map[string]int{"read": len(all.seen), "repeated": all.seen.repeated()}, nil
}

func saramaRange(ctx context.Context, bootstrap string, as *login) (any, error) {
	return saramaGroup(ctx, bootstrap, as, sarama.NewBalanceStrategyRange())
}

func saramaRoundRobin(ctx context.Context, bootstrap string, as *login) (any, error) {
	return saramaGroup(ctx, bootstrap, as, sarama.NewBalanceStrategyRoundRobin())
}

func saramaSticky(ctx context.Context, bootstrap string, as *login) (any, error) {
	return saramaGroup(ctx, bootstrap, as, sarama.NewBalanceStrategySticky())
}
